"""Checks of stop strings in every operation that generates: what is cut, kept and held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core_conformance.checking import ask
from core_conformance.checking.ask import SPEAKING, Answer
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_answers
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, run
from core_conformance.checking.ways.table import Way, ways

_NEEDS = (*SPEAKING, *BATCHES)
_LENGTH = 32  # tokens: their text is longer than any window of an engine's detokenizer
_SHORT = "no operation generates text to take stop strings from: use a model that continues"


@check(
    "stop.long",
    "In every operation, a stop string of many tokens MUST be found as a short one is",
    _NEEDS,
    broad=True,
)
def long_stops_are_found(subject: Subject) -> None:
    for way, prompt, free in _spoken(subject):
        for start in (0, 1, len(free.text) // 3):
            _must_cut(subject, way, prompt, free, (free.text[start:-1],))


def _must_cut(
    subject: Subject,
    way: Way,
    prompt: str,
    free: Answer,
    stops: Sequence[str],
    most: int = _LENGTH,
) -> None:
    """Raise `Violation` unless the stop that begins first ends the text, with the reason "stop"."""
    seen = _stopped(subject, way, prompt, stops, most)
    if not _same_tokens(subject, way, free, seen, stops):
        return
    what = f"{way.name} with stop={tuple(stops)!r} and max_tokens={most}"
    expected = free.text[: min(place for stop in stops if (place := free.text.find(stop)) >= 0)]
    must(seen.text == expected, f"{what} gave {seen.text!r}, expected {expected!r}")
    must(
        seen.finish_reason in ("stop", None),  # which the pairs of a batch do not tell
        f"{what} ended {seen.text!r} with {seen.finish_reason!r}, not 'stop'",
    )


def _same_tokens(
    subject: Subject, way: Way, free: Answer, seen: Answer, stops: Sequence[str] = ()
) -> bool:
    """Return True for the tokens of the free answer; those that differ must do so at a tie."""
    if seen.ids == free.ids[: len(seen.ids)]:
        return True
    same_answers(subject, [(free, seen)], f"{way.name} without, and with stop={stops}", stops=stops)
    return False


def _spoken(subject: Subject) -> Iterator[tuple[Way, str, Answer]]:
    """Yield each operation that generates, with a prompt and its answer of `_LENGTH` tokens."""
    speaking = False
    for way in ways(subject, *_NEEDS):
        for prompt in (*ask.PLAIN, ask.LONG):
            free = _stopped(subject, way, prompt, ())
            if len(free.tokens) == _LENGTH and "\ufffd" not in free.text:
                speaking = True
                yield way, prompt, free
                break
    testable(speaking, _SHORT)


def _stopped(
    subject: Subject, way: Way, prompt: str, stops: Sequence[str], most: int = _LENGTH
) -> Answer:
    options: dict[str, Any] = {"stop": tuple(stops)} if stops else {}
    (row,) = run(subject, way, subject.model, [prompt], most, **options)
    must(row.error is None, f"{way.name} of {prompt!r} with stop={stops!r} gave {row.error!r}")
    return row.answer
