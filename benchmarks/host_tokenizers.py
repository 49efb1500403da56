"""Tokenizers of every family, as its publisher ships them and as ``infer-cli convert`` writes them.

Vocabularies are those of the two real models: Gemma 3's 262,144 tokens for each family that uses
SentencePiece, SmolLM2's 49,152 for each that has tokens of bytes. The pipeline around them, and the
flags of added tokens, are the family's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer as Library

from core_runtime.tokenizer.files import TokenizerFiles
from core_runtime.tokenizer.model_tokenizer import Tokenizer
from runtime.tests.published.shapes import Added, Json, Vocabulary, converted, shaped

FAMILIES = {
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "llama2": "llama",
    "llama3": "llama",
    "smollm2": "llama",
    "mistral1": "mistral",
    "mistral3": "mistral",
    "tekken": "mistral",
    "qwen": "qwen2, qwen3",
}
"""The families by the shape of their tokenizer.json."""

_BYTES = ("llama3", "smollm2", "tekken", "qwen")


@dataclass(frozen=True)
class Pair:
    """The tokenizers of one shape, over one vocabulary."""

    shape: str
    converted: Tokenizer
    published: Tokenizer


def pairs(gemma: Path, smollm: Path) -> Iterator[Pair]:
    """Make the tokenizers of each shape from the directories of two converted models."""
    for shape in FAMILIES:
        content: Json = json.loads(
            ((smollm if shape in _BYTES else gemma) / "tokenizer.json").read_text()
        )
        vocabulary = _vocabulary(shape, content)
        yield Pair(
            shape,
            _tokenizer(converted(shape, vocabulary)),
            _tokenizer(shaped(shape, vocabulary)),
        )


def _vocabulary(shape: str, content: Json) -> Vocabulary:
    """Return a converted model's vocabulary, with the added tokens of a family of this shape."""
    tokens: dict[str, int] = content["model"]["vocab"]
    merges = [(left, right) for left, right in content["model"]["merges"]]
    own = [
        Added(token["id"], token["content"], token["special"]) for token in content["added_tokens"]
    ]
    if shape in ("gemma2", "gemma3"):
        return Vocabulary(tokens, merges, _of_gemma(own, len(tokens)))
    if shape in _BYTES:
        begin = "<|begin_of_text|>" if shape == "llama3" else "<s>"
        return Vocabulary(tokens, merges, [*own, Added(len(tokens), begin)])
    # Gemma's words; what a Llama adds to its own are a few special tokens.
    renamed = {("<s>" if token == "<bos>" else token): index for token, index in tokens.items()}
    return Vocabulary(renamed, merges, [Added(renamed[name], name) for name in ("<unk>", "<s>")])


def _of_gemma(own: Sequence[Added], size: int) -> list[Added]:
    """Return Gemma's: unused tokens are not special, and one follows the embedding's last row."""
    flagged = [
        Added(token.id, token.content, token.special and not token.content.startswith("<unused"))
        for token in own
    ]
    return [*flagged, Added(size, "<image_soft_token>")]


def _tokenizer(content: Json) -> Tokenizer:
    return Tokenizer(TokenizerFiles(Library.from_str(json.dumps(content)), "", {}, {}))
