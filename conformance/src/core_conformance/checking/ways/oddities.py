"""Oddities that a way can meet, and the texts that have them.

Clauses over the table of ways take their texts from here; the table's recorder looks for the same
oddities in the calls that checks make (`core_conformance.coverage`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any

from core_conformance.checking.ask import HOSTILE, ODD
from core_conformance.checking.generated.strategies import SPELLED

TEXTS: Mapping[str, str] = ODD | {
    "special tokens": HOSTILE[-1],
    "the reference's special tokens": "<s><user>one</s><assistant>",
    "a NUL": "one\0two",
    "control characters": "one\x01\x1b[0m two\x7f",
    "white space in front": "  \n one",
    "one character": "x",
}
"""Texts that any prompt, message or continuation may be, by what is odd in them."""

BROKEN = "half a character: \ud83d"
"""A text that is not valid Unicode."""

MIXED: Mapping[str, Any] = {
    "temperature": 20.0, "typical_p": 0.9, "top_p": 0.8, "min_p": 0.01, "repeat_penalty": 1.3,
    "seed": 4,
}  # fmt: skip
"""Options of sampling together, each of which changes what is drawn."""

_BORDERS = {size + offset for size in (32, 64, 128) for offset in (-1, 0, 1)}  # tokens
_MANY_ROWS, _MANY_LABELS = 32, 16


@dataclass(frozen=True, slots=True)
class Seen:
    """One entry of texts into a model: the prompts of a call, or its labels, or its stop strings.

    ``counts``: the tokens that the model has read after each text. ``options``: those of the call
    that are not at their default.
    """

    entry: str
    texts: Sequence[str] = ()
    counts: Sequence[int] = ()
    context: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    facts: frozenset[str] = frozenset()


Met = Callable[[Seen], bool]


def _text(met: Callable[[str], bool]) -> Met:
    return lambda seen: any(map(met, seen.texts))


def _option(name: str) -> Met:
    return lambda seen: name in seen.options


def _fact(name: str) -> Met:
    return lambda seen: name in seen.facts


def _valid(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


OF_TEXTS: dict[str, Met] = {
    "special tokens": _text(lambda text: any(spelled in text for spelled in SPELLED)),
    "CR LF": _text(lambda text: "\r\n" in text),
    "NUL": _text(lambda text: "\0" in text),
    "controls": _text(lambda text: any(c in text for c in "\x01\x07\x1b\x7f")),
    "combining": _text(lambda text: any(map(unicodedata.combining, text))),
    "emoji": _text(lambda text: any("\U0001f000" <= c <= "\U0001ffff" for c in text)),
    "a script": _text(lambda text: any(c >= "\u0370" and c.isalpha() for c in text)),
    "not Unicode": _text(lambda text: not _valid(text)),
    "blank ends": _text(lambda text: text[-1:].isspace() and not text.isspace()),
    "blank first": _text(lambda text: text[:1].isspace() and not text.isspace()),
    "white space": _text(str.isspace),
    "one character": _text(lambda text: len(text) == 1),
}
OF_SIZES: dict[str, Met] = {
    "empty": _text(lambda text: not text),
    "a block": lambda seen: any(count in _BORDERS for count in seen.counts),
    "full context": lambda seen: seen.context in seen.counts,
    "one too long": lambda seen: seen.context + 1 in seen.counts,
    "too long": lambda seen: any(count > seen.context + 1 for count in seen.counts),
}
OF_ROWS: dict[str, Met] = {
    "no rows": lambda seen: not seen.texts,
    "equal rows": lambda seen: len({*seen.texts}) < len(seen.texts),
    "two errors": lambda seen: len(_errors(seen)) > 1,
    "many rows": lambda seen: len(seen.texts) > _MANY_ROWS,
}
OF_LABELS: dict[str, Met] = {
    "three nested": lambda seen: (
        any(
            two.startswith(one) and three.startswith(two)
            for one, two, three in combinations(sorted(seen.texts), 3)
        )
        if len(seen.texts) < _MANY_LABELS
        else False
    ),
    "case alone": lambda seen: len({*map(str.lower, seen.texts)}) < len({*seen.texts}),
    "blanks alone": lambda seen: len({*map(str.strip, seen.texts)}) < len({*seen.texts}),
    "many labels": lambda seen: len(seen.texts) >= _MANY_LABELS,
    "duplicates": lambda seen: len({*seen.texts}) < len(seen.texts),
    "empty": _text(lambda text: not text),
}
OF_STOPS: dict[str, Met] = {
    "begin alike": lambda seen: any(
        one[:1] == two[:1] and not two.startswith(one)
        for one, two in pairwise(sorted(filter(None, seen.texts)))
    ),
    "nested": lambda seen: any(
        one in two and one != two
        for one, two in pairwise(sorted(filter(None, seen.texts), key=len))
    ),
    "several": lambda seen: len(seen.texts) > 1,
    "NUL": _text(lambda text: "\0" in text),
    "not Unicode": _text(lambda text: not _valid(text)),
}
OF_REQUESTS: dict[str, Met] = {
    name: _option(name)
    for name in (
        "temperature", "seed", "top_k", "top_p", "min_p", "typical_p", "repeat_penalty",
        "return_logprobs",
    )
}  # fmt: skip
OF_GENERATION: dict[str, Met] = {
    "stop": _option("stop"),
    "stop_tokens": _option("stop_tokens"),
    "max_tokens=1": lambda seen: seen.options.get("max_tokens") == 1,
    "context rotates": _fact("rotates"),
    "past a rotation": lambda seen: (
        "rotates" in seen.facts
        and any(
            count + seen.options.get("max_tokens", 256) > seen.context + 1 and count <= seen.context
            for count in seen.counts
        )
    ),
}
OF_LABELLED: dict[str, Met] = {"labels_only": _option("labels_only")}
OF_CALLS: dict[str, Met] = {
    "cancel": _option("cancel"),
    "timeout": _option("timeout"),
    "config": _fact("config"),
    "adapter": _fact("adapter"),
    "adapter handle": _fact("handle"),
}


def _errors(seen: Seen) -> set[str]:
    """Return the kinds of error that the rows of a call have."""
    kinds = {"empty" for text in seen.texts if not text}
    kinds |= {"too long" for count in seen.counts if count > seen.context}
    return kinds | {"not Unicode" for text in seen.texts if not _valid(text)}
