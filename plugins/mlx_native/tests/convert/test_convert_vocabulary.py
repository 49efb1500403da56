"""Tokenizers built from GGUF metadata, against llama.cpp's token ids."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core_mlx_native.convert import convert
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.vocabulary import build_tokenizer
from core_runtime.tokenizer.model_tokenizer import Tokenizer

MakeGguf = Callable[..., Any]

_TOKENS = Path(__file__).parents[4] / "runtime" / "tests" / "llama_cpp_tokens" / "tokens.json"
_REFERENCE = json.loads(_TOKENS.read_bytes())


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_the_converted_models_have_what_the_converter_makes_now(
    request: pytest.FixtureRequest, name: str
) -> None:
    source = GgufSource(request.getfixturevalue(f"{name}_gguf"))
    built = build_tokenizer(source.metadata)
    stored = request.getfixturevalue(f"{name}_dir") / "tokenizer.json"
    # Where this fails after a change of the converter: raise CONVERTER_VERSION.
    assert built.to_str() == stored.read_text("utf-8")
    built.encode_special_tokens = True
    encoded = built.encode_batch_fast(_REFERENCE["plain"])
    assert [item.ids for item in encoded] == _REFERENCE[name]["plain"]


def test_scores_decide_which_merge_comes_first(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("gemma3")
    tiny.write(tmp_path / "m.gguf")
    one = Tokenizer.from_directory(convert(tmp_path / "m.gguf", tmp_path / "one"))
    assert [one.token_text(id) for id in one.encode(" ab")] == ["<bos>", " a", "b"]
    tiny.metadata["tokenizer.ggml.scores"][-1] = -0.5  # "ab", now better than "▁a"
    tiny.write(tmp_path / "m.gguf")
    other = Tokenizer.from_directory(convert(tmp_path / "m.gguf", tmp_path / "other"))
    assert [other.token_text(id) for id in other.encode(" ab")] == ["<bos>", " ", "ab"]
    assert other.decode(other.encode(" ab é")) == " ab é"  # the last one as bytes


def test_bos_rules(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny = tiny_gguf("llama")
    del tiny.metadata["tokenizer.ggml.add_bos_token"]
    for pre, ids in [("smollm", [3]), ("llama-bpe", [1, 3])]:  # llama.cpp's defaults
        tiny.metadata["tokenizer.ggml.pre"] = pre
        out = convert(tiny.write(tmp_path / "m.gguf"), tmp_path / pre)
        assert Tokenizer.from_directory(out).encode("a") == ids
