"""Where a text may be cut in two, so that the tokens of both parts are those of the whole.

That is so between a letter, digit or mark of ASCII and a space with a letter of ASCII behind it:
what splits texts into words always splits there, and no token of a byte-pair encoding lies across.
It holds for the parts of a tokenizer that are known here; others cut nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix
from string import ascii_letters, digits
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers.models import BPE

from core_mlx_native.text.library import SPACE, replaces_spaces
from core_mlx_native.text.text_bound import steps

_BEFORE = frozenset(ascii_letters + digits + ".,:;!?")
_AFTER = frozenset(ascii_letters)
_ACROSS = re.compile(r"[A-Za-z0-9.,:;!?][ \u2581][A-Za-z]?")
_LOOK = 8  # words back from the end: a text without a cut there is cut nowhere
_WORTH = 24  # characters of a beginning or an end that texts have in common

# The patterns of Llama 3, of Qwen, and of Mistral's tekken: none lets a match go on over a space,
# or look at one.
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
    """Whether texts may be cut for this tokenizer, to which special tokens are plain text."""
    model = library.model
    normalizers = steps(library.normalizer, "normalizers")
    splitters = steps(library.pre_tokenizer, "pretokenizers")
    added = [each for each in library.get_added_tokens_decoder().values() if not each.special]

    # No part may look at what stands on the other side.
    whole = isinstance(model, BPE) and not (
        model.dropout or model.continuing_subword_prefix or model.end_of_word_suffix
    )
    local = _normalize_locally(normalizers) and _split_locally(splitters)
    apart = any(token.lstrip or token.rstrip or token.single_word for token in added)
    if not whole or not local or apart:
        return False

    # Nor may an added token lie across, nor one of the model, where nothing splits words before.
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
    """The last place at which a text may be cut, near its end; 0 where there is none."""
    place = len(text)
    for _ in range(_LOOK):
        place = text.rfind(" ", 0, place)
        if place <= 0:
            return 0
        if text[place - 1] in _BEFORE and text[place + 1 : place + 2] in _AFTER:
            return place
    return 0


def common_ends(texts: Sequence[str]) -> tuple[int, int]:
    """How many characters texts begin and end with alike, as far as they may be cut there."""
    head = _beginning(min(texts), max(texts))
    begin = last_cut(head) if len(head) >= _WORTH else 0

    tail = texts[0][begin:]
    for text in texts:
        if not text.endswith(tail, begin):
            tail = _beginning(tail[::-1], text[begin:][::-1])[::-1]
    return begin, len(tail) - _first_cut(tail)


def _beginning(one: str, other: str) -> str:
    """What two texts begin with alike."""
    return commonprefix([one, other])  # noqa: RUF071 - of texts, not of paths


def _first_cut(text: str) -> int:
    """The first place at which a text may be cut; its length where there is none."""
    place = text.find(" ", 1)
    while place > 0:
        if text[place - 1] in _BEFORE and text[place + 1 : place + 2] in _AFTER:
            return place
        place = text.find(" ", place + 1)
    return len(text)


def _normalize_locally(normalizers: Sequence[dict[str, Any]]) -> bool:
    """Return True for normalizers that do to both parts what they do to the whole.

    NFC joins nothing to ASCII. A space that is put before every text stands for the one that the
    second part begins with, which is then left out.
    """
    match normalizers:
        case [{"type": "Prepend", "prepend": letter}, step]:
            return letter == SPACE and replaces_spaces(step)
    return all(step["type"] == "NFC" or replaces_spaces(step) for step in normalizers)


def _split_locally(splitters: Sequence[dict[str, Any]]) -> bool:
    """Return True for pre-tokenizers that are known, and look at nothing across.

    Metaspace puts a space before a text that begins with none, which the second part does.
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
    """Return True for a pre-tokenizer that begins a new piece with the space before a word."""
    match step:
        case {"type": "Metaspace", "split": split}:
            return bool(split)
        case {"type": "ByteLevel", "use_regex": by_regex}:
            return bool(by_regex)
    return bool(step["type"] == "Split")


def _only_leads(library: Library) -> bool:
    """Whether special tokens are added in front alone."""
    lead = library.encode("").ids
    text = "a b"
    return bool(
        library.encode(text).ids == lead + library.encode(text, add_special_tokens=False).ids
    )
