"""Tokenizers built from GGUF metadata, against llama.cpp's token ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core_runtime.gguf.metadata import Metadata
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.vocabulary import build_tokenizer

_REFERENCE = json.loads(
    (Path(__file__).parents[1] / "llama_cpp_tokens" / "tokens.json").read_bytes()
)


@pytest.mark.parametrize("name", ["llama-bpe", "gpt-2"])
def test_other_pre_tokenizers(smollm2_gguf: Path, name: str) -> None:
    """Over SmolLM2's vocabulary, with the name of the pre-tokenizer changed."""
    found = GgufSource(smollm2_gguf).metadata
    built = build_tokenizer(Metadata({**found.values, "tokenizer.ggml.pre": name}, found.where))
    built.encode_special_tokens = True
    encoded = built.encode_batch_fast(_REFERENCE["plain"])
    assert [item.ids for item in encoded] == _REFERENCE[name]["plain"]
    assert _REFERENCE[name]["plain"] != _REFERENCE["smollm2"]["plain"]
