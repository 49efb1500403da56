"""A lower bound of a text's tokens, from the parts of the tokenizer.

A prompt with more bytes than the context's tokens can represent is refused before tokenisation.
This is sound for a byte-level BPE after steps that drop nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from core_runtime.tokenizer.detokenizer import byte_letters

COMPOSING = 4
"""NFC makes one byte from fewer bytes than this, in all of Unicode, as a test checks."""

_KEEPING = frozenset({"ByteLevel", "Digits", "Metaspace", "Punctuation", "Split"})
_IN_UTF8 = frozenset(range(256)) - {0xC0, 0xC1, *range(0xF5, 0x100)}  # RFC 3629, section 1


@dataclass(frozen=True, slots=True)
class TextBound:
    """The maximum of text bytes per token, not counting ``dropped`` bytes.

    ``most`` is 0 if unknown.
    """

    most: int = 0
    dropped: bytes = b""

    def fewest_tokens(self, text: str) -> int:
        """Return the minimum number of a text's tokens; 0 if unknown."""
        return -(-len(text.encode().translate(None, self.dropped)) // self.most) if self.most else 0


def text_bound(library: Library) -> TextBound:
    """Return the bound of a tokenizer that reads special tokens in a text as literal text."""
    normalizers = steps(library.normalizer, "normalizers")
    splitters = steps(library.pre_tokenizer, "pretokenizers")
    added = list(library.get_added_tokens_decoder().values())

    # Unknown steps, or steps that drop text, give no bound.
    if not (all(map(_shortening, normalizers)) and all(map(_keeps, splitters))):
        return TextBound()

    letters = any(step["type"] == "ByteLevel" for step in normalizers + splitters)
    vocabulary = library.get_vocab(with_added_tokens=False)
    dropped = _dropped(library, vocabulary, letters)

    # A normalizer changes a text's bytes, so the dropped ones are not known.
    if dropped is None or (dropped and normalizers) or any(map(_eats, added)):
        return TextBound()

    # For the rest, no token represents more bytes than the longest one.
    sizes = [len(token) if letters else len(token.encode()) for token in vocabulary]
    sizes += [_size(library, token.content) for token in added]
    return TextBound(max(sizes) * prod(map(_shortening, normalizers)), dropped)


def steps(part: Any, several: str) -> list[dict[str, Any]]:
    """Return the steps of a part.

    The library exposes them only in JSON.
    """
    if part is None:
        return []
    state = json.loads(part.__getstate__())
    return [leaf for step in state.get(several, [state]) for leaf in _flat(step, several)]


def _flat(step: dict[str, Any], several: str) -> list[dict[str, Any]]:
    inner = step.get(several)
    return [step] if inner is None else [leaf for one in inner for leaf in _flat(one, several)]


def _shortening(step: dict[str, Any]) -> int:
    """Return the maximum of bytes that a normalizer turns into one; 0 if unknown."""
    match step:
        case {"type": "NFC"}:
            return COMPOSING
        case {"type": "Prepend" | "ByteLevel"}:
            return 1
        case {"type": "Replace", "pattern": {"String": old}, "content": new}:
            return int(len(new.encode()) >= len(old.encode()))
    return 0


def _keeps(step: dict[str, Any]) -> bool:
    """Return True if a pre-tokenizer splits a text without dropping any of it."""
    return step["type"] in _KEEPING and step.get("behavior") != "Removed"


def _dropped(library: Library, vocabulary: Collection[str], letters: bool) -> bytes | None:
    """Return the bytes unknown to the model; None if it may join many into one token."""
    model = library.model
    if not isinstance(model, BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return None
    if letters:
        return bytes(byte for letter, byte in byte_letters().items() if letter not in vocabulary)
    known = model.byte_fallback and all(f"<0x{byte:02X}>" in vocabulary for byte in _IN_UTF8)
    return b"" if known else None


def _eats(token: AddedToken) -> bool:
    """Return True if an added token absorbs any amount of white space next to it."""
    return not token.special and (token.lstrip or token.rstrip)


def _size(library: Library, content: str) -> int:
    """Return the maximum size of an added token in a text, literal or normalised, in bytes."""
    normalizer = library.normalizer
    normalised = normalizer.normalize_str(content) if normalizer else content
    return max(len(content.encode()), len(normalised.encode()))
