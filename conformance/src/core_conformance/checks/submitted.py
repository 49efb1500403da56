"""Checks of submitted requests that are not read, or closed late: others go their own way."""

from __future__ import annotations

import threading
import time
from typing import Any

from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core_conformance.checking import ask
from core_conformance.checking.ask import evidence, read, speaks, submitting
from core_conformance.checking.budget import pass_seconds
from core_conformance.checking.calls import (
    CancelAfter,
    SlowLooks,
    close_quietly,
    longest,
    unless_refused,
)
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.compare import same_speech
from core_conformance.checking.subject import Subject

_FEW, _MANY, _LONG = 4, 12, 96  # tokens
_PAUSE, _STILL = 0.01, 25  # seconds; pauses without a look, after which a request stands still
_PATIENCE = 1.0  # seconds that a look waits at most
_HOT = {"temperature": 50.0}
_ENDS = "the model ends every long answer early: use a model that continues"


@check(
    "submitting.close-ended",
    "close() of a submitted stream that has ended MUST change nothing: not the request that has "
    "its place now",
    Capability.SUBMITTING,
)
def closing_an_ended_stream_is_nothing(subject: Subject) -> None:
    prompt, _ = longest(subject)
    alone = read(_submit(subject, prompt, _MANY), prompt)
    ended = [_submit(subject, text, _FEW) for text in ask.PLAIN[:3]]
    for stream in ended:
        read(stream)
    with unless_refused("cancel"):
        cancel = Held()
        running = [_submit(subject, prompt, _MANY, cancel=cancel) for _ in range(2)]
        for stream in (*ended, *ended):
            stream.close()
        cancel.released.set()
        pairs = [(alone, read(stream, prompt)) for stream in running]
        same_speech(subject, pairs, "alone, and while streams that had ended were closed")
        reasons = [right.finish_reason for _, right in pairs]
        must(
            reasons == [alone.finish_reason] * 2,
            f"while streams that had ended were closed, others ended with {reasons}, not "
            f"{alone.finish_reason!r}",
        )


class Held(CancelAfter):
    """A cancel that is never set, at whose looks a request waits until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        self.released.wait(_PATIENCE)
        return super().is_set()


@check(
    "submitting.unread",
    "A submitted request MUST run to its end though nobody reads it, however long its answer",
    Capability.SUBMITTING,
    broad=True,
)
def unread_requests_end(subject: Subject) -> None:
    speaks(subject, Capability.SUBMITTING)
    most = min(_LONG, subject.model.info.context_length // 2)
    with unless_refused("cancel"):
        for options in ({}, _HOT):
            witness = SeesOthers()
            config = GenerateConfig(max_tokens=most, cancel=witness, **options)  # type: ignore[arg-type]
            stream = submitting(subject).submit(ask.LONG, config)
            try:
                seen, own = _looks(subject, witness), witness.own  # submit may do all the work
                answer = read(stream)
            finally:
                close_quietly(stream)
            if len(answer.tokens) < most:
                continue
            must(
                seen > 0 or witness.own - own <= most // 8,
                f"an unread request polled its cancel never, and {witness.own - own} times once it "
                "was read: it began then",
            )
            must(
                witness.seen - seen <= most // 8,
                f"an unread request of {most} tokens polled its cancel {seen} times, and "
                f"{witness.seen - seen} times more once it was read: it stood still",
            )
            return
    testable(False, _ENDS)


class SeesOthers(CancelAfter):
    """A cancel that counts the looks of other threads; ``own``: those of the thread that reads."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self._thread = 0, threading.get_ident()

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        if threading.get_ident() != self._thread:
            return super().is_set()
        self.own += 1
        return False


def _looks(subject: Subject, witness: CancelAfter) -> int:
    """Return the number of looks, once there are no more."""
    pause = max(_PAUSE, pass_seconds(subject))
    seen, still, begins = -1, 0, time.monotonic() + 2 * _PATIENCE + 100 * pause
    while still < _STILL:
        time.sleep(pause)
        begun = seen > 0 or time.monotonic() > begins
        still = still + 1 if witness.seen == seen and begun else 0
        seen = witness.seen
    return seen


def _submit(subject: Subject, prompt: str, max_tokens: int, **others: Any) -> TokenStream:
    speaks(subject, Capability.SUBMITTING)
    options: dict[str, Any] = {"max_tokens": max_tokens, **evidence(subject), **others}
    return submitting(subject).submit(prompt, GenerateConfig(**options))


_LOOK, _TOKENS, _FEW_LOOKS = 0.003, 48, 12  # seconds; tokens; looks of a request
_MOST = 0.75  # of the looks that are left when it is closed
_ALONE = 0.25  # seconds without a look, after which polling has ended


@check(
    "submitting.close-stops",
    "A submitted request whose stream is closed MUST end, not run on without a reader",
    Capability.SUBMITTING,
)
def closed_requests_end(subject: Subject) -> None:
    prompt, _ = longest(subject)
    with unless_refused("cancel"):
        calm, witness = SlowLooks(_LOOK), SlowLooks(_LOOK)
        whole = submitting(subject).submit(prompt, _options(calm))
        list(whole)
        stream = submitting(subject).submit(prompt, _options(witness))
        next(stream, None)
        stream.close()
        before, seen = witness.seen, witness.settled(_ALONE)
        left = calm.seen - before
        if left < _FEW_LOOKS:
            leave_out(f"a request that had {left} looks at its cancel left when it was closed")
            must(seen <= calm.seen, f"a closed request polled its cancel {seen} times")
            return
        must(
            seen - before < _MOST * left,
            f"a request was closed after its first token, and its cancel was polled "
            f"{seen - before} times after that; {left} times were left: it ran on",
        )


def _options(cancel: CancelAfter) -> GenerateConfig:
    return GenerateConfig(max_tokens=_TOKENS, cancel=cancel)
