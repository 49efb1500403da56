"""Checks of stop strings and stop tokens, taken from the model's own greedy answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from core_conformance.checking import ask
from core_conformance.checking.ask import SPEAKING, Answer, generate
from core_conformance.checking.check import NotTestable, check, must
from core_conformance.checking.stopping import must_stop, wavers
from core_conformance.checking.subject import Subject

_LENGTH = 12
_NEVER = "\u2603never\u2603"


@check(
    "stop.in-token",
    "A stop string inside one token MUST end the text before it, and MUST NOT be emitted",
    SPEAKING,
)
def stops_inside_a_token(subject: Subject) -> None:
    prompt, free = _spoken(subject)
    texts = [token.text for token in free.tokens[1:-2]]
    text = max(texts, key=len)
    must_stop(subject, prompt, free, (text[1:] or text,), _LENGTH)


@check(
    "stop.across-two",
    "A stop string that lies across two tokens MUST be found, and no part of it emitted",
    SPEAKING,
)
def stops_across_two(subject: Subject) -> None:
    _stops_across(subject, 2)


@check(
    "stop.across-three",
    "A stop string that lies across three tokens MUST be found, and no part of it emitted",
    SPEAKING,
)
def stops_across_three(subject: Subject) -> None:
    _stops_across(subject, 3)


@check(
    "stop.several",
    "Of several stop strings the one that comes first MUST end the text, in whatever order given",
    SPEAKING,
)
def first_of_several(subject: Subject) -> None:
    prompt, free = _spoken(subject)
    border, whole = _border(free, _LENGTH // 3), free.text[: _border(free, _LENGTH - 1)]
    early, late = free.text[border - 1 : border + 1], whole[-2:]
    must_stop(subject, prompt, free, (early, late), _LENGTH)
    must_stop(subject, prompt, free, (late, early), _LENGTH)


@check(
    "stop.overlapping",
    "Of stop strings that overlap none MUST be emitted",
    SPEAKING,
)
def overlapping(subject: Subject) -> None:
    prompt, free = _spoken(subject)
    middle = _border(free, _LENGTH // 2)
    outer, inner = free.text[middle - 2 : middle + 2], free.text[middle - 1 : middle + 1]
    answer = generate(subject, prompt, _LENGTH, stop=(outer, inner))
    if wavers(subject, prompt, free, answer, _LENGTH):
        return
    # Which of the two ends the text is left open: the first that begins or that is complete.
    allowed = {free.text[: free.text.find(stop)] for stop in (outer, inner)}
    must(
        answer.text in allowed,
        f"stop={(outer, inner)!r} in {free.text!r} left {answer.text!r}; one of "
        f"{sorted(allowed)} was expected",
    )


@check(
    "stop.never",
    "A stop string that never comes MUST change nothing",
    SPEAKING,
)
def never_comes(subject: Subject) -> None:
    prompt, free = _spoken(subject)
    _changes_nothing(subject, prompt, free, _NEVER)


@check(
    "stop.held-back",
    "Text held back because it might begin a stop string MUST come out when the generation ends",
    SPEAKING,
)
def held_back_comes_out(subject: Subject) -> None:
    prompt, free = _spoken(subject)
    _changes_nothing(subject, prompt, free, free.text[-2:] + _NEVER)


@check(
    "stop.tokens",
    "A generation MUST end at a token of stop_tokens, with all before it and without it",
    SPEAKING,
)
def stop_tokens(subject: Subject) -> None:
    prompt, free = _spoken(subject)
    stop = free.ids[_LENGTH // 2]
    answer = generate(subject, prompt, _LENGTH, stop_tokens=(stop,))
    if wavers(subject, prompt, free, answer, _LENGTH):
        return
    expected = free.ids[: free.ids.index(stop)]
    must(
        answer.ids == expected and answer.finish_reason == "stop",
        f"stop_tokens=({stop},) left {list(answer.ids)} ({answer.finish_reason}) of "
        f"{list(free.ids)}; {list(expected)} and finish_reason 'stop' were expected",
    )


def _spoken(subject: Subject) -> tuple[str, Answer]:
    """Return a prompt with a greedy answer that has text to take stop strings from."""
    return next(_all_spoken(subject), None) or _nothing_to_stop(
        f"{_LENGTH} greedy tokens of whole characters"
    )


def _all_spoken(subject: Subject) -> Iterator[tuple[str, Answer]]:
    for prompt in (*ask.PLAIN, ask.LONG):
        answer = generate(subject, prompt, _LENGTH)
        sound = "\ufffd" not in answer.text and len(answer.text) >= _LENGTH // 2
        if sound and len(answer.tokens) >= _LENGTH:
            yield prompt, answer


def _nothing_to_stop(what: str) -> NoReturn:
    raise NotTestable(
        f"none of {len(ask.PLAIN) + 1} prompts is continued by {what}, so there is nothing "
        "that could be stopped: use a model that continues"
    )


def _stops_across(subject: Subject, width: int) -> None:
    for prompt, free in _all_spoken(subject):
        stop = _border_string(free, width)
        if stop:
            must_stop(subject, prompt, free, (stop,), _LENGTH)
            return
    _nothing_to_stop(f"{_LENGTH} greedy tokens with text of {width} that comes but once")


def _border(free: Answer, tokens: int) -> int:
    """Return the place in the text at which the first ``tokens`` tokens end."""
    return len("".join(token.text for token in free.tokens[:tokens]))


def _border_string(free: Answer, width: int) -> str:
    """Return the shortest text across ``width`` tokens that does not come earlier in the answer."""
    texts = [token.text for token in free.tokens]
    for first in range(1, _LENGTH - width):
        if not all(texts[first : first + width]):
            continue
        inner = "".join(texts[first + 1 : first + width - 1])
        stop = texts[first][-1] + inner + texts[first + width - 1][0]
        if free.text.find(stop) == len("".join(texts[: first + 1])) - 1:
            return stop
    return ""


def _changes_nothing(subject: Subject, prompt: str, free: Answer, stop: str) -> None:
    answer = generate(subject, prompt, _LENGTH, stop=stop)
    if wavers(subject, prompt, free, answer, _LENGTH):
        return
    must(
        (answer.ids, answer.text, answer.finish_reason)
        == (free.ids, free.text, free.finish_reason),
        f"stop={stop!r}, which never comes, made {answer.text!r} ({answer.finish_reason}) of "
        f"{free.text!r} ({free.finish_reason})",
    )
