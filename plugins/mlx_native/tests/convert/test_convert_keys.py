"""Every key of a GGUF file is converted, listed as harmless, or refused by its name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import ConversionError, UnsupportedModelError
from core_mlx_native.convert import convert
from core_runtime.gguf.ends import end_ids
from core_runtime.gguf.keys import HARMLESS, NEUTRAL
from core_runtime.gguf.source import GgufSource

MakeGguf = Callable[..., Any]
ARCHITECTURES = ("llama", "gemma3")

# Of a value that no neutral one is, and that no reader takes for a type of its own.
_ODD = 3.25


def _files(tiny: Any, directory: Path) -> dict[str, bytes]:
    out = convert(tiny.write(directory / "m.gguf"), directory / "out", overwrite=True)
    return {
        file.name: file.read_bytes() for file in out.iterdir() if file.name != "conversion.json"
    }


def _constants(names: type) -> list[str]:
    """The keys that gguf-py knows, of a class and of those within it."""
    parts = [value for name, value in vars(names).items() if not name.startswith("_")]
    nested = [key for part in parts if isinstance(part, type) for key in _constants(part)]
    return [part for part in parts if isinstance(part, str)] + nested


def _own_keys(architecture: str) -> list[str]:
    keys = [key for key in _constants(gguf.Keys) if key.startswith(("{arch}.", "tokenizer."))]
    filled = [key.format(arch=architecture, dense="dense_2", name="x") for key in keys]
    return list(dict.fromkeys(filled))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_key_changes_the_directory_or_is_listed_or_refused(
    tmp_path: Path, tiny_gguf: MakeGguf, architecture: str
) -> None:
    plain, listed = _files(tiny_gguf(architecture), tmp_path), HARMLESS
    others = [key for key in _own_keys(architecture) if key not in tiny_gguf(architecture).metadata]
    assert len(others) > 100
    silent = [
        key
        for key in others
        if _outcome(tiny_gguf(architecture), key, tmp_path) in (plain, "refused for another reason")
        and key.removeprefix(architecture) not in listed
    ]
    assert silent == []


def _outcome(tiny: Any, key: str, directory: Path) -> object:
    tiny.metadata[key] = _ODD
    try:
        return _files(tiny, directory)
    except (ConversionError, UnsupportedModelError) as error:
        is_named = key.rpartition(".")[2] in str(error)
        return "refused by name" if is_named else "refused for another reason"


@pytest.mark.parametrize(
    ("architecture", "own"),
    [
        (architecture, own)
        for architecture in ARCHITECTURES
        for own in NEUTRAL
        if (architecture, own) != ("gemma3", ".attention.sliding_window")  # honoured there
    ],
)
def test_a_neutral_value_is_harmless_and_another_refused(
    tmp_path: Path, tiny_gguf: MakeGguf, architecture: str, own: str
) -> None:
    key = f"{architecture}{own}"
    plain, tiny = _files(tiny_gguf(architecture), tmp_path), tiny_gguf(architecture)
    neutral, reason = NEUTRAL[own]
    tiny.metadata[key] = neutral
    assert _files(tiny, tmp_path) == plain
    tiny.metadata[key] = {bool: False, int: 7, float: 7.0}[type(neutral)]
    with pytest.raises(ConversionError, match=rf"{key}=.*{reason}.*llama_cpp"):
        _files(tiny, tmp_path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("general.file_type", 7),
        ("general.sampling.temp", 0.5),
        ("general.alignment", 32),
        ("general.base_model.0.name", "x"),
        ("quantize.imatrix.file", "x"),
        ("split.count", 1),
        ("somebody.else", "x"),
    ],
)
def test_other_namespaces_do_no_harm(
    tmp_path: Path, tiny_gguf: MakeGguf, key: str, value: object
) -> None:
    plain, tiny = _files(tiny_gguf(), tmp_path), tiny_gguf()
    tiny.metadata[key] = value
    assert _files(tiny, tmp_path) == plain


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix", "anything"])
def test_what_is_not_a_model_is_refused(tmp_path: Path, tiny_gguf: MakeGguf, kind: str) -> None:
    tiny = tiny_gguf()
    tiny.metadata["general.type"] = kind
    with pytest.raises(ConversionError, match=f"general.type is '{kind}'"):
        _files(tiny, tmp_path)


@pytest.mark.parametrize(("pattern", "full"), [(0, []), (1, range(7)), (2, [1, 3, 5]), (6, [5])])
def test_window_patterns_are_those_of_llama_cpp(
    tmp_path: Path, tiny_gguf: MakeGguf, pattern: int, full: list[int]
) -> None:
    tiny = tiny_gguf("gemma3")
    tiny.metadata["gemma3.attention.sliding_window_pattern"] = pattern
    layers = json.loads(_files(tiny, tmp_path)["config.json"])["layer_types"]
    assert [place for place, name in enumerate(layers) if name == "full_attention"] == [*full]


# --------------------------------------------------------------------------- ends of generations

_TEXTS = [
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>"),
    *("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "[EOT]", "[EOS]", "<eos>"),
    *("<|end_of_text|>", "<end_of_utterance>", "<turn|>", "<|tool_response>", "[e~[", "<|user|>"),
    *("<|fim_pad|>", "<reponame>", "<|file_sep|>", "<|fim_prefix|>"),
    *("<|plamo:eos|>", "<unused1>", "x1", "x2", "x3"),
]
_NAMED = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep", "fim_pre", "padding")


def _llama_cpp_ends(path: Path) -> set[int]:
    # The plugin's own, whose log handler is the process's: llama.cpp has one.
    library = pytest.importorskip("core_llama_cpp.library").load_library()
    params = library.llama_model_default_params()
    params.vocab_only = True
    model = library.llama_model_load_from_file(bytes(path), params)
    vocab = library.llama_model_get_vocab(model)
    size = library.llama_vocab_n_tokens(vocab)
    ends = {i for i in range(size) if library.llama_vocab_is_eog(vocab, i)}
    library.llama_model_free(model)
    return ends


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.lists(st.sampled_from(_TEXTS), unique=True, min_size=1, max_size=12),
    named=st.dictionaries(st.sampled_from(_NAMED), st.integers(0, 11), max_size=3),
)
def test_generations_end_where_llama_cpp_ends_them(
    tmp_path: Path, tiny_gguf: MakeGguf, texts: list[str], named: Mapping[str, int]
) -> None:
    tiny = tiny_gguf()
    words = [*tiny.metadata["tokenizer.ggml.tokens"][3:], *texts]
    tiny.metadata["tokenizer.ggml.tokens"] = words
    tiny.metadata["tokenizer.ggml.token_type"] = [1] * 6 + [3] * len(texts)
    for key, place in {"eos": 0, **named}.items():
        tiny.metadata[f"tokenizer.ggml.{key}_token_id"] = 6 + place % len(texts)
    path = tiny.write(tmp_path / "m.gguf")
    assert set(end_ids(GgufSource(path).metadata)) == _llama_cpp_ends(path)


def test_a_plain_token_ends_nothing_by_its_text(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("gemma3")
    words = [*tiny.metadata["tokenizer.ggml.tokens"][:-1], "</s>"]
    types = [*tiny.metadata["tokenizer.ggml.token_type"][:-1], 4]
    tiny.metadata |= {"tokenizer.ggml.tokens": words, "tokenizer.ggml.token_type": types}
    path = tiny.write(tmp_path / "m.gguf")
    assert end_ids(GgufSource(path).metadata) == [1, 5]
    assert _llama_cpp_ends(path) == {1, 5, len(words) - 1}


def test_a_list_of_ends_is_read(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf()
    tiny.metadata["tokenizer.ggml.eos_token_ids"] = [2, 4]
    generation = json.loads(_files(tiny, tmp_path)["generation_config.json"])
    assert generation["eos_token_id"] == [2, 4, 0]
    tiny.metadata["tokenizer.ggml.eos_token_ids"] = [9]
    with pytest.raises(ConversionError, match="eos_token_ids are not in the vocabulary"):
        _files(tiny, tmp_path)
