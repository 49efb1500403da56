"""What a GGUF header says of a model, and files whose headers lie."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import CoreError, InvalidModelError, TokenizerError, UnsupportedModelError
from core_llama_cpp.checkpoint.header import read_header
from core_llama_cpp.checkpoint.probe import probe, refusal

TinyGguf = Callable[..., Path]


def test_the_sizes_of_a_model(tiny_gguf: TinyGguf) -> None:
    header = read_header(tiny_gguf())
    assert header.architecture == "llama"
    assert (header.context_length, header.hidden_size) == (512, 64)
    assert (header.num_layers, header.num_heads, header.vocab_size) == (2, 4, 101)
    # layers * KV heads * (key + value) * 2 bytes, a head being 64 / 4 wide
    assert header.cell_bytes == 2 * 2 * (16 + 16) * 2


def test_kv_heads_may_differ_from_layer_to_layer(tiny_gguf: TinyGguf) -> None:
    lists = {"llama.attention.head_count_kv": [1, 0], "llama.attention.head_count": [4, 8]}
    widths = {"llama.attention.key_length": 24, "llama.attention.value_length": 8}
    header = read_header(tiny_gguf(change={**lists, **widths}))
    assert header.cell_bytes == 1 * (24 + 8) * 2
    assert header.num_heads == 8


def test_no_kv_heads_said_means_all_heads(tiny_gguf: TinyGguf) -> None:
    header = read_header(tiny_gguf(change={"llama.attention.head_count_kv": None}))
    assert header.cell_bytes == 2 * 4 * (16 + 16) * 2


def test_real_models(smollm2_gguf: Path, gemma3_gguf: Path) -> None:
    smollm2, gemma3 = read_header(smollm2_gguf), read_header(gemma3_gguf)
    assert (smollm2.context_length, smollm2.vocab_size, smollm2.cell_bytes) == (8192, 49152, 23040)
    assert (gemma3.context_length, gemma3.vocab_size, gemma3.cell_bytes) == (32768, 262144, 18432)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llama.block_count", "two"),
        ("llama.block_count", 10_001),
        ("llama.embedding_length", 6.5),
        ("llama.context_length", True),
        ("llama.attention.head_count_kv", [1]),
        ("llama.attention.head_count_kv", ["1", "1"]),
        ("llama.attention.head_count", 2**31),
    ],
)
def test_a_key_that_no_model_has(tiny_gguf: TinyGguf, key: str, value: object) -> None:
    with pytest.raises(InvalidModelError, match=f"{key} is"):
        read_header(tiny_gguf(change={key: value}))


@pytest.mark.parametrize("kind", ["adapter", "mmproj", "imatrix"])
def test_a_file_that_is_no_language_model(tiny_gguf: TinyGguf, kind: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"not a language model, but '{kind}'"):
        read_header(tiny_gguf(change={"general.type": kind}))


def test_an_architecture_that_llama_cpp_has_no_code_for(tiny_gguf: TinyGguf) -> None:
    with pytest.raises(UnsupportedModelError, match="does not support the architecture 'gpt17'"):
        probe(tiny_gguf(architecture="gpt17"))


@pytest.mark.parametrize("architecture", ["bert", "t5", "nomic-bert"])
def test_a_model_that_continues_no_text(tiny_gguf: TinyGguf, architecture: str) -> None:
    with pytest.raises(UnsupportedModelError, match="do not generate text"):
        probe(tiny_gguf(architecture=architecture))


def test_an_embedding_model_of_a_generating_architecture(tiny_gguf: TinyGguf) -> None:
    with pytest.raises(UnsupportedModelError, match="do not generate text"):
        probe(tiny_gguf(change={"llama.attention.causal": False}))


@pytest.mark.parametrize(
    ("architecture", "key"), [("mamba", "ssm.state_size"), ("rwkv7", "wkv.head_size")]
)
def test_a_recurrent_model(tiny_gguf: TinyGguf, architecture: str, key: str) -> None:
    path = tiny_gguf(architecture=architecture, change={f"{architecture}.{key}": 16})
    with pytest.raises(UnsupportedModelError, match="recurrent state"):
        probe(path)


@pytest.mark.parametrize("missing", ["tokenizer.ggml.model", "tokenizer.ggml.tokens"])
def test_a_model_without_a_tokenizer(tiny_gguf: TinyGguf, missing: str) -> None:
    with pytest.raises(TokenizerError, match="has no tokenizer"):
        probe(tiny_gguf(change={missing: None}))


def test_what_loads_is_not_refused(
    tiny_gguf: TinyGguf, smollm2_gguf: Path, gemma3_gguf: Path
) -> None:
    for path in (tiny_gguf(), tiny_gguf("split", shards=2), smollm2_gguf, gemma3_gguf):
        assert refusal(path) is None
        assert refusal(str(path)) is None


def test_refusals_are_words(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    (tmp_path / "magic.gguf").write_bytes(b"GGUX" + bytes(100))
    assert "GGUF" in (refusal(tmp_path / "magic.gguf") or "")
    assert "Model not found" in (refusal(tmp_path / "nothing") or "")
    assert "gpt17" in (refusal(tiny_gguf(architecture="gpt17")) or "")


@pytest.mark.parametrize("kept", [4, 24, 100, 2000, 4000])
def test_a_header_cut_short(tiny_gguf: TinyGguf, kept: int) -> None:
    path = tiny_gguf()
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InvalidModelError, match="broken"):
        read_header(path)


def test_weights_cut_off_are_seen(smollm2_gguf: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    shutil.copy(smollm2_gguf, path)
    with path.open("r+b") as file:
        file.truncate(smollm2_gguf.stat().st_size // 2)
    assert "after the end of the file" in (refusal(path) or "")


@given(st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mutated_header_loads_or_is_refused_in_words(
    tiny_gguf: TinyGguf, data: st.DataObject
) -> None:
    path = tiny_gguf(tensors=False)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(CoreError):  # and nothing else
        probe(path)


def test_no_folder_for_temporary_files_is_needed(
    tiny_gguf: TinyGguf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose disk is read-only; and without a descriptor the load tells."""
    path = tiny_gguf(architecture="gpt18")

    def fails(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("tempfile.NamedTemporaryFile", fails)
    if hasattr(os, "memfd_create"):
        assert "gpt18" in (refusal(path) or "")
        monkeypatch.setattr(os, "memfd_create", fails)
    assert refusal(tiny_gguf(architecture="gpt19")) is None
