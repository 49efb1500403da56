"""Sizes at which engines break, prompts of an exact token count, and prompts that do not fit.

Blocks, chunks and buffers are powers of two, so what lies around these comes first in a sweep.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from core.errors import OptionError, PromptTooLongError, UnsupportedOptionError
from core.protocols import Capability, TextModel
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.check import must, well_formed
from core_conformance.checking.material import own
from core_conformance.checking.subject import Subject

MOST = 130
"""Tokens of the longest prompt or answer in a sweep, where the context has room for it."""

SMALL_CONTEXT = 128  # tokens
_LARGE_CONTEXT = 65_536
_PASS = 20  # tokens
_TEXT = (
    "river stone garden winter morning letter window bridge silver forest captain market kitchen "
    "summer doctor island village mountain yellow music picture sister office friend number animal "
    "country water paper table money church street evening father horse corner engine flower "
    "minute moment mother nature object people person planet result school second spring station "
    "story teacher theory travel valley weather wonder worker"
)
_WORDS = _TEXT.split()
_OWN = own()
_OWN_WORDS = list(dict.fromkeys(" ".join(_OWN.prompts if _OWN else ()).split()))
_SPOKEN = _OWN_WORDS if len(_OWN_WORDS) >= 12 else _WORDS  # in prompts that are generated from
NO_SIZES = "the tokenizer splits no text at any of the sizes tried: use another model"
_REACH = 12  # characters around the first cut, among which a better one may be


def telling(most: int, least: int = 1) -> list[int]:
    """Return all sizes between two.

    8, 16, 32 and on, then those after them, 9, 17, 33, then all.
    """
    powers = [2**exponent for exponent in range(3, most.bit_length() + 1)]
    around = [power + offset for offset in (0, 1, -1) for power in powers]
    return [size for size in dict.fromkeys((*around, *range(most + 1))) if least <= size <= most]


def room(subject: Subject, spare: int = 8) -> int:
    """Return the tokens of the longest prompt for a sweep.

    `MOST`, or what the context has room for besides ``spare`` tokens.
    """
    return min(MOST, subject.model.info.context_length - spare)


def reading(times: int) -> Callable[[int], float]:
    """Return the cost in passes of reading a prompt that often, by its tokens (`budget.within`)."""
    return lambda tokens: times * max(1.0, tokens / _PASS)


def sized(subject: Subject, tokens: int, turn: int = 0) -> str | None:
    """Return a prompt of exactly this many tokens; None if the tokenizer gives no such prompt.

    No two of nearby sizes begin alike, nor two of different ``turn``: what a backend keeps of one
    does not serve the other. Without a tokenizer, that many characters.
    """
    first = 7 * tokens + 13 * turn
    text = " ".join(_SPOKEN[(first + place) % len(_SPOKEN)] for place in range(tokens))
    if not subject.declares(Capability.TOKENIZING):
        return text[:tokens]
    return _cut(subject, text, tokens)


def cuts(subject: Subject, text: str) -> dict[int, str]:
    """Return, by token count, the prefixes of a text whose tokens also begin the text's."""
    encode, prefixes = tokenizing(subject).encode, dict[int, str]()
    whole = encode(text)
    well_formed(bool(whole), f"encode() has no ids for {text!r:.60}")
    for end in range(1, len(text) + 1):
        ids = encode(text[:end])
        if list(ids) == list(whole[: len(ids)]):
            prefixes[len(ids)] = text[:end]
    return prefixes


def words(count: int) -> list[str]:
    """Return ``count`` words, at most 60: none is a prefix of another."""
    return _WORDS[:count]


def rows(count: int) -> list[str]:
    """Return ``count`` short, different prompts; every fifth is longer than its neighbours."""
    longer = " ".join(_WORDS[:6])
    return [
        f"{_WORDS[number % len(_WORDS)]} {number}" + f" {longer}" * (number % 5 == 2)
        for number in range(count)
    ]


def _cut(subject: Subject, text: str, tokens: int) -> str | None:
    encode = tokenizing(subject).encode
    well_formed(bool(encode(text)), f"encode() has no ids for {text!r:.60}")
    ends = range(1, len(text) + 1)
    first = bisect_left(ends, tokens, key=lambda end: len(encode(text[:end])))
    near: Sequence[int] = ends[max(0, first - _REACH) : first + _REACH]
    fits = [end for end in near if len(encode(text[:end])) == tokens]
    # At the end of a word, what comes next does not change the tokens before it.
    whole = [end for end in fits if text[end : end + 1] in ("", " ") and text[end - 1] != " "]
    return next((text[:end] for end in (*whole, *fits)), None)


def small(subject: Subject, context_len: int, **options: Any) -> TextModel:
    """Load a model of this context, or of its own if the backend refuses to make it smaller."""
    try:
        return subject.load(context_len=context_len, **options)
    except OptionError:
        return subject.load(**options)


@contextmanager
def short_context(subject: Subject, large: int = _LARGE_CONTEXT) -> Iterator[TextModel]:
    """Yield a model whose context is soon exceeded: the shared one, unless its context is large.

    ``large``: the largest context, in tokens, that the shared model may have. A backend may
    refuse to make its context smaller.
    """
    if subject.model.info.context_length <= large:
        yield subject.model
        return
    try:
        model = subject.load(context_len=SMALL_CONTEXT)
    except UnsupportedOptionError:
        yield subject.model
        return
    with model:
        yield model


def overlong(model: TextModel) -> str:
    """Return a prompt longer than the model's context."""
    # A number is one token at least, whatever the vocabulary; twice as many to be safe.
    return " ".join(str(number) for number in range(2 * model.info.context_length))


def must_be_too_long(model: TextModel, error: Exception | None, length: int | None) -> None:
    """Raise `Violation` unless this is the error of a prompt of ``length`` tokens."""
    must(
        isinstance(error, PromptTooLongError),
        f"a prompt longer than the context of {model.info.context_length} tokens ended with "
        f"{error!r}: expected PromptTooLongError",
    )

    # Its two numbers are right, and in this order.
    assert isinstance(error, PromptTooLongError)
    must(
        0 < error.limit <= model.info.context_length < error.length,
        f"PromptTooLongError reports length {error.length} and limit {error.limit}, but the "
        f"context holds {model.info.context_length}",
    )
    must(
        length in (None, error.length),
        f"PromptTooLongError reports length {error.length}, but encode() makes {length} tokens",
    )
