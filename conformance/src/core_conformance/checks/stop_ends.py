"""Stops that never come: begun in the prompt, after a NUL, beyond the vocabulary, or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from core.errors import OptionError
from core.protocols import Capability
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer
from core_conformance.checking.check import check, must
from core_conformance.checking.compare import same_answers
from core_conformance.checking.draws.operations import draw, drawing
from core_conformance.checking.subject import Subject

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
