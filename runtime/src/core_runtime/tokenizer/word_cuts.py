"""Places where a text can be cut so that the parts' tokens are the complete text's tokens.

Such a place is between an ASCII letter, digit or mark and a space followed by an ASCII letter:
splitting into words always splits there, and BPE tokens do not cross it. This holds for the
tokenizer parts known here; with others no place is a cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix
from string import ascii_letters, digits
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from core_runtime.tokenizer.library import SPACE, replaces_spaces
from core_runtime.tokenizer.text_bound import steps

_BEFORE = frozenset(ascii_letters + digits + ".,:;!?")
_AFTER = frozenset(ascii_letters)
_ACROSS = re.compile(r"[A-Za-z0-9.,:;!?][ \u2581][A-Za-z]?")
_LOOK = 8  # words to search from the end; beyond them, a text is not cut
_WORTH = 24  # minimum of characters in a shared prefix

# The patterns of Llama 3, of Qwen, and of Mistral's tekken: in none does a match
# continue over a space, or look at one.
_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = frozenset({_PATTERN % "", _PATTERN % "{1,3}", TEKKEN})


def can_cut(library: Library) -> bool:
    """Return whether texts may be cut for this tokenizer, which reads special tokens literally."""
    model = library.model
    normalizers = steps(library.normalizer, "normalizers")
    splitters = steps(library.pre_tokenizer, "pretokenizers")
    added = [token for token in library.get_added_tokens_decoder().values() if not token.special]

    # No part may look across the cut.
    whole = isinstance(model, BPE) and not (
        model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix
    )
    local = _normalize_locally(normalizers) and _split_locally(splitters)
    apart = any(token.lstrip or token.rstrip or token.single_word for token in added)
    if not whole or not local or apart:
        return False

    # No added token may cross it, nor a token of the model unless words are split before.
    if any(_ACROSS.search(token.content) for token in added):
        return False
    if not any(map(_splits_words, splitters)):
        vocabulary = library.get_vocab(with_added_tokens=False)
        if model.ignore_merges or SPACE not in vocabulary:
            return False
        if _ACROSS.search("\n".join(vocabulary)):
            return False

    return _only_leads(library)


def last_cut(text: str) -> int:
    """Return the last place near its end where a text may be cut; 0 without one."""
    place = len(text)
    for _ in range(_LOOK):
        place = text.rfind(" ", 0, place)
        if place <= 0:
            return 0
        if text[place - 1] in _BEFORE and text[place + 1 : place + 2] in _AFTER:
            return place
    return 0


def common_ends(texts: Sequence[str]) -> tuple[int, int]:
    """Return the lengths of the prefix and suffix shared by texts, shortened to cuts."""
    head = _beginning(min(texts), max(texts))
    begin = last_cut(head) if len(head) >= _WORTH else 0

    tail = texts[0][begin:]
    for text in texts:
        if not text.endswith(tail, begin):
            tail = _beginning(tail[::-1], text[begin:][::-1])[::-1]
    return begin, len(tail) - _first_cut(tail)


def _beginning(one: str, other: str) -> str:
    """Return the common prefix of two texts."""
    return commonprefix([one, other])  # noqa: RUF071 - of texts, not of paths


def _first_cut(text: str) -> int:
    """Return the first place where a text may be cut; its length without one."""
    place = text.find(" ", 1)
    while place > 0:
        if text[place - 1] in _BEFORE and text[place + 1 : place + 2] in _AFTER:
            return place
        place = text.find(" ", place + 1)
    return len(text)


def _normalize_locally(normalizers: Sequence[dict[str, Any]]) -> bool:
    """Return True for normalizers that treat the parts like the complete text.

    NFC joins nothing to ASCII. A space prepended to every text replaces the leading space of the
    second part, which is then omitted.
    """
    match normalizers:
        case [{"type": "Prepend", "prepend": letter}, step]:
            return letter == SPACE and replaces_spaces(step)
    return all(step["type"] == "NFC" or replaces_spaces(step) for step in normalizers)


def _split_locally(splitters: Sequence[dict[str, Any]]) -> bool:
    """Return True for known pre-tokenizers that do not look across a cut.

    Metaspace prepends a space to a text without one; the second part starts with one.
    """
    match splitters:
        case [{"type": "Metaspace", "replacement": letter}]:
            return bool(letter == SPACE)
    return all(map(_splits, splitters))


def _splits(step: dict[str, Any]) -> bool:
    match step:
        case {"type": "Digits"} | {"type": "ByteLevel", "add_prefix_space": False}:
            return True
        case {"type": "Split", "behavior": "Isolated", "invert": False, "pattern": pattern}:
            return pattern.get("Regex") in _PATTERNS
    return False


def _splits_words(step: dict[str, Any]) -> bool:
    """Return True for a pre-tokenizer that starts a new piece at the space before a word."""
    match step:
        case {"type": "Metaspace", "split": split}:
            return bool(split)
        case {"type": "ByteLevel", "use_regex": by_regex}:
            return bool(by_regex)
    return bool(step["type"] == "Split")


def _only_leads(library: Library) -> bool:
    """Return whether special tokens are only prepended."""
    lead = library.encode("").ids
    text = "a b"
    return bool(
        library.encode(text).ids == lead + library.encode(text, add_special_tokens=False).ids
    )
