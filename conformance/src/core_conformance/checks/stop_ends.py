"""Stops that never come, and long ones: begun in the prompt, after a NUL, or over many tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core.errors import OptionError
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.compare import same_answers
from core_conformance.checking.draws.operations import draw, drawing
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, run
from core_conformance.checking.ways.table import Way, ways

_LENGTH = 8
_NEEDS = (*SPEAKING, Capability.BATCH_GENERATE)
_WORD = "\u2603never\u2603"


@check(
    "stop.in-prompt",
    "A stop string that stands in the prompt, or begins there, MUST change nothing: stops are "
    "looked for in what is generated",
    _NEEDS,
    broad=True,
)
def prompts_hold_no_stops(subject: Subject) -> None:
    for name, prompt, free in _answers(subject):
        within, across = prompt.split()[-1], prompt[-3:] + free.text[:2]
        for stop in (within, within[-1:], across, prompt[-3:] + free.text):
            if stop not in free.text:
                _changes_nothing(subject, name, prompt, free, stop=stop)


@check(
    "stop.nul",
    "A stop string MUST be matched whole, what stands after a NUL in it too",
    _NEEDS,
    broad=True,
)
def nul_ends_no_stop(subject: Subject) -> None:
    for name, prompt, free in _answers(subject):
        for front in ("", free.text[:2], free.text[-2:]):
            _changes_nothing(subject, name, prompt, free, stop=f"{front}\0{_WORD}")


@check(
    "stop.tokens-beyond",
    "An id of stop_tokens that is not a token of the vocabulary MUST stop nothing",
    _NEEDS,
    broad=True,
)
def ids_beyond_the_vocabulary_stop_nothing(subject: Subject) -> None:
    size = subject.model.info.vocab_size
    for name, prompt, free in _answers(subject):
        one = free.ids[len(free.ids) // 2]
        for beyond in (size, size + one, 2**31 + one, 2**32 + one, 2**64 + one):
            _changes_nothing(subject, name, prompt, free, stop_tokens=(beyond,))


@check(
    "stop.none",
    "An empty list of stop strings, or of stop tokens, MUST be taken and change nothing",
    _NEEDS,
    broad=True,
)
def no_stops_stop_nothing(subject: Subject) -> None:
    for name, prompt, free in _answers(subject):
        _changes_nothing(subject, name, prompt, free, stop=(), stop_tokens=())
        _changes_nothing(subject, name, prompt, free, stop=[], stop_tokens=[])


def _answers(subject: Subject) -> Iterator[tuple[Capability, str, Answer]]:
    """Yield greedy answers that have text, of each operation that generates."""
    free = list[Answer]()
    names = [name for name in drawing(subject) if name is not Capability.CLASSIFY]
    for name in names:
        for prompt in ask.PLAIN:
            (answer,) = draw(subject, name, [prompt], _LENGTH)
            free.append(answer)
            if "\ufffd" not in answer.text and len(answer.text) > 2:
                yield name, prompt, answer
                break
    goes_on(subject, [answer.ids for answer in free], names[0])


def _changes_nothing(
    subject: Subject, name: Capability, prompt: str, free: Answer, **options: Any
) -> None:
    try:
        (seen,) = draw(subject, name, [prompt], _LENGTH, **options)
    except OptionError as error:
        # What is not a token may be refused; an invalid stop may not.
        must(bool(options.get("stop_tokens")), f"{name} with {options} raised {error!r}")
        return
    what = f"{name} after {prompt!r} without, and with {options}"
    stop = options.get("stop", ())
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    same_answers(subject, [(free, seen)], what, stops=stops)
    must(
        seen.ids != free.ids or seen.finish_reason == free.finish_reason,
        f"{what}: it ended with {free.finish_reason!r} and then with {seen.finish_reason!r}",
    )


_SPOKEN = (*SPEAKING, *BATCHES)
_SHOWN_TOKENS = 32  # tokens: their text is longer than any window of an engine's detokenizer
_SHORT = "no operation generates text to take stop strings from: use a model that continues"


@check(
    "stop.long",
    "In every operation, a stop string of many tokens MUST be found as a short one is",
    _SPOKEN,
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
    most: int = _SHOWN_TOKENS,
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
    """Yield each operation that generates, with a prompt and its answer."""
    speaking = False
    for way in ways(subject, *_SPOKEN):
        for prompt in (*ask.PLAIN, ask.LONG):
            free = _stopped(subject, way, prompt, ())
            if len(free.tokens) == _SHOWN_TOKENS and "\ufffd" not in free.text:
                speaking = True
                yield way, prompt, free
                break
    testable(speaking, _SHORT)


def _stopped(
    subject: Subject, way: Way, prompt: str, stops: Sequence[str], most: int = _SHOWN_TOKENS
) -> Answer:
    options: dict[str, Any] = {"stop": tuple(stops)} if stops else {}
    (row,) = run(subject, way, subject.model, [prompt], most, **options)
    must(row.error is None, f"{way.name} of {prompt!r} with stop={stops!r} gave {row.error!r}")
    return row.answer
