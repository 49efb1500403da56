"""The part of an answer that stop strings must leave, given the answer without them."""

from __future__ import annotations

from collections.abc import Sequence

from core_conformance.checking.ask import Answer, generate
from core_conformance.checking.check import must
from core_conformance.checking.compare import difference
from core_conformance.checking.subject import Subject


def must_stop(subject: Subject, prompt: str, free: Answer, stops: Sequence[str], most: int) -> None:
    """Raise `Violation` unless one of ``stops`` ends the answer ``free``, before itself.

    ``free`` is the greedy answer of at most ``most`` tokens, in which one of them comes.
    """
    answer = generate(subject, prompt, most, stop=stops)
    if wavers(subject, prompt, free, answer, most):
        return

    # The stop string that comes first ends the text, before it.
    places = [free.text.find(stop) for stop in stops]
    expected = free.text[: min(place for place in places if place >= 0)]

    must(
        answer.text == expected,
        f"stop={stops!r} left {answer.text!r} of {free.text!r}; {expected!r} was expected",
    )
    must(
        answer.finish_reason == "stop",
        f"stop={stops!r} ended {answer.text!r} with {answer.finish_reason!r}, not 'stop'",
    )
    must(
        answer.ids == free.ids[: len(answer.ids)],
        f"stop={stops!r} changed the tokens before it: {list(answer.ids)}, not {list(free.ids)}",
    )


def wavers(subject: Subject, prompt: str, free: Answer, answer: Answer, most: int) -> bool:
    """Return True when greedy tokens differ for another reason than stops.

    A tie, or unsteady answers.
    """
    if answer.ids == free.ids[: len(answer.ids)]:
        return False
    again = generate(subject, prompt, most)
    return _parts_at_a_tie(subject, free, answer) or again.ids != free.ids


def _parts_at_a_tie(subject: Subject, free: Answer, answer: Answer) -> bool:
    both = min(len(free.ids), len(answer.ids))
    parts = free.ids[:both] != answer.ids[:both]  # not only that one of them continues
    return parts and difference(subject, [(free, answer)]) is None
