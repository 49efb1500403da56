"""Checks of a cancel that is set while a prompt is read, by looks and by time.

A prompt of more than a chunk is read in several: a cancel is heard between them, and after the
last one, before the first token is drawn.
"""

from __future__ import annotations

import itertools
import threading
import time
from functools import partial
from typing import Any

from core.errors import GenerationCancelled
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, speak
from core_conformance.checking.budget import pass_seconds, passes, within
from core_conformance.checking.calls import CancelAfter, encoded_length, promptly, unless_refused
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.subject import Subject

_TRIES = 3  # of what a machine's noise could explain once
_SLOW = 0.2  # seconds of a prefill from which on a cancel can be set within it
_ONE_CHUNK, _LONG = 512, 640  # tokens: a longer prompt is read in chunks
_count = itertools.count()


@check(
    "cancel.prefill-midway",
    "A cancel that is set at any look while a prompt is read MUST be heard before its first token, "
    "after the last chunk of a long one too",
    SPEAKING,
    broad=True,
)
def prefill(subject: Subject) -> None:
    prompt, length = _long_prompt(subject)
    with unless_refused("cancel"):
        _first_token(subject, prompt)  # the first of its kind may be slower
        token, looks, seconds = _first_token(subject, prompt)
        goes_on(subject, [token])
        cost = max(1.0, seconds / pass_seconds(subject))
        turns = sorted({1, 2, max(1, looks // 4), max(1, looks // 2)} - {looks + 1})
        for at in within(subject, turns, lambda at: cost * at / looks, "looks in a long prompt"):
            _heard_at(subject, prompt, at, looks)
        if length <= _ONE_CHUNK or seconds < _SLOW:
            leave_out(f"a cancel between two looks: {length} tokens take {seconds:.3f} s")
            return
        for share in within(subject, (0.5, 0.8), lambda _: cost, "cancels within a long prompt"):
            _heard_after_the_last_chunk(subject, prompt, share, seconds)


def _long_prompt(subject: Subject) -> tuple[str, int]:
    """Return a prompt of more than a chunk, where context and passes have room for it.

    Its length.
    """
    room = subject.model.info.context_length * 5 // 8
    most = min(room, _LONG, max(64, passes(subject) * 20 // 2))
    count = most // 3  # a number and its blank are at most three tokens
    length = encoded_length(subject, _numbers(count))
    if length is None:
        return _numbers(count), count
    text = _numbers(count * most // max(1, length))
    return text, encoded_length(subject, text) or 0


def _numbers(count: int) -> str:
    return " ".join(str(number % 10) for number in range(max(1, count)))


def _first_token(subject: Subject, prompt: str) -> tuple[tuple[Any, ...], int, float]:
    """Return the first token, the number of polls before it, and the seconds until it came."""
    calm, start = CancelAfter(), time.perf_counter()
    stream = speak(subject, subject.model, _fresh(prompt), max_tokens=1, cancel=calm)
    first = _first(stream)
    looks, seconds = calm.seen, time.perf_counter() - start
    must(not isinstance(first, Exception), f"a prompt of {len(prompt)} characters gave {first!r}")
    stream.close()
    return (() if first is None else (first,)), looks, seconds


def _fresh(prompt: str) -> str:
    """Return the prompt after two new letters, so that no part of it is cached."""
    front, back = divmod(next(_count) % 26**2, 26)
    return f"{chr(ord('A') + front)}{chr(ord('a') + back)}{prompt}"


def _heard_at(subject: Subject, prompt: str, at: int, looks: int) -> None:
    for _ in range(_TRIES):
        cancel = CancelAfter(at)
        stream = speak(subject, subject.model, _fresh(prompt), max_tokens=8, cancel=cancel)
        first = promptly(subject, partial(_first, stream), f"a prompt cancelled at look {at}")
        cancelled = cancel.heard  # before this token
        stream.close()
        if isinstance(first, GenerationCancelled) or not cancelled:
            must(True, "")
            return
    must(
        False,
        f"a cancel that was set at look {at} of {looks} of a long prompt gave {first!r}: "
        "expected GenerationCancelled instead of the first token",
    )


def _heard_after_the_last_chunk(
    subject: Subject, prompt: str, share: float, seconds: float
) -> None:
    """Set the cancel by time, between two polls; a token that comes soon after it is excused."""
    early = (1 - share) * seconds
    for _ in range(_TRIES):
        cancel = CancelAfter()
        stream = speak(subject, subject.model, _fresh(prompt), max_tokens=8, cancel=cancel)
        timer, start = threading.Timer(share * seconds, setattr, (cancel, "now", True)), _now()
        timer.start()

        first = promptly(subject, partial(_first, stream), "a long prompt, cancelled by time")
        left = _now() - start - share * seconds
        timer.cancel()
        stream.close()

        if isinstance(first, GenerationCancelled) or left < 0.6 * early:
            must(True, "")
            return

    must(
        False,
        f"a cancel was set {left:.2f} s before the first token of a long prompt, which took "
        f"{seconds:.2f} s, but {first!r} came: poll it between chunks, and after the last one",
    )


def _now() -> float:
    return time.perf_counter()


def _first(stream: Any) -> object:
    try:
        return next(stream, None)
    except Exception as error:  # noqa: BLE001 - the check looks at it
        return error
