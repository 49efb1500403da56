"""Checks that cancel and timeout are looked at all along a call, not at its beginning alone.

The call takes long enough to see that: its size comes from the model's speed. No piece of it may
go without a look for most of its time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from core.errors import GenerationTimeout
from core.protocols import Capability
from core_conformance.checking import tally
from core_conformance.checking.ask import SPEAKING
from core_conformance.checking.budget import pass_seconds, within
from core_conformance.checking.calls import CancelAfter, unless_refused
from core_conformance.checking.check import must
from core_conformance.checking.registry import check
from core_conformance.checking.rows import (
    BATCHES,
    READERS,
    Row,
    Way,
    asked,
    run,
    timed,
    undisturbed,
    ways,
)
from core_conformance.checking.subject import Subject

_LONG = 0.03  # seconds of a call in which something can be seen
_MOST_PIECE = 0.75  # of the time, without a look
_LATE = 3.5  # times the timeout
_SHARES = (0.75, 0.45, 0.9, 0.6)  # of the time, at which a row may have tokens
_TRIES = len(_SHARES)  # of what a machine's noise could explain once
_FEW, _SOME = 2, 8  # rows of a batch, so few that they run at once; and tokens
_LEAST_ROWS, _MOST_ROWS = 160, 2000
_LEAST_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Long:
    """An operation, with so many prompts and tokens that it takes ``seconds``, as is expected."""

    way: Way
    rows: int
    tokens: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.way.name} of {self.rows} prompts"


@check(
    "cancel.looks-generating",
    "Cancel and timeout MUST be looked at all along a generation, alone and of a batch, whose rows "
    "keep the tokens they had",
    (*SPEAKING, *BATCHES),
    broad=True,
)
def generating(subject: Subject) -> None:
    _look_at(subject, [_generation(subject, way) for way in ways(subject, *SPEAKING, *BATCHES)])


@check(
    "cancel.looks-reading",
    "Cancel and timeout MUST be looked at all along classify, classify_iter and score, between "
    "their rows",
    READERS[:3],
    broad=True,
)
def reading(subject: Subject) -> None:
    _look_at(subject, [_reading(subject, way) for way in ways(subject, *READERS[:3])])


def _generation(subject: Subject, way: Way) -> Long:
    rows = 1 if way.single else _FEW
    begin, step = (_seconds(subject, way, rows, count) for count in (1, 1 + _SOME))
    each = max(1e-6, (step - begin) / _SOME)
    most = subject.model.info.context_length // 2
    tokens = min(most, max(_LEAST_TOKENS, math.ceil(2 * _LONG / each)))
    return Long(way, rows, tokens, begin + each * tokens)


def _reading(subject: Subject, way: Way) -> Long:
    each = _seconds(subject, way, _SOME, 1) / _SOME
    rows = min(_MOST_ROWS, max(_LEAST_ROWS, math.ceil(2 * _LONG / each)))
    return Long(way, rows, 1, each * rows)


def _seconds(subject: Subject, way: Way, rows: int, tokens: int) -> float:
    runs = (timed(subject, way, subject.model, asked(rows), tokens) for _ in range(2))
    return max(1e-6, min(took for _, took in runs))


def _look_at(subject: Subject, calls: list[Long]) -> None:
    one = pass_seconds(subject)
    calls.sort(key=lambda long: long.seconds)
    for long in within(subject, calls, lambda long: 3 * long.seconds / one, "long calls"):
        prompts = asked(long.rows)
        measured = replace(long, seconds=_alone(subject, long, prompts))
        with unless_refused("timeout"):
            _asks_for_timeout(subject, measured, prompts)
        if long.way.name is Capability.BATCH_GENERATE and measured.seconds >= _LONG:
            for option in _STOP:
                with unless_refused(option):
                    _keeps_tokens(subject, measured, prompts, option)


def _alone(subject: Subject, long: Long, prompts: Sequence[str]) -> float:
    """How long the call takes when it is not stopped; its cancel is asked for all along."""
    seconds = math.inf

    def strike() -> str:
        nonlocal seconds
        calm, start = CancelAfter(), time.perf_counter()
        rows = run(subject, long.way, subject.model, prompts, long.tokens, cancel=calm)
        end = time.perf_counter()
        seconds = min(seconds, end - start)
        undisturbed(rows, f"{long} with a cancel that is never set")
        return _unheard(long, [start, *calm.times, end])

    with unless_refused("cancel"):
        _not_each_time(strike)
        return seconds
    return timed(subject, long.way, subject.model, prompts, long.tokens)[1]


def _unheard(long: Long, times: Sequence[float]) -> str:
    whole = times[-1] - times[0]
    piece = max(later - earlier for earlier, later in pairwise(times))
    if whole < _LONG:
        tally.left_out(f"{long}: it takes {whole:.3f} s, in which little can be seen")
        return ""
    if piece <= _MOST_PIECE * whole:
        return ""
    return (
        f"{long} took {whole:.3f} s, and for {piece:.3f} s of them nobody looked at its cancel "
        f"({len(times) - 2} looks): look at it between any two pieces of work"
    )


def _asks_for_timeout(subject: Subject, long: Long, prompts: Sequence[str]) -> None:
    timeout = 0.2 * long.seconds

    def strike() -> str:
        rows, took = _late(subject, long, prompts, timeout)
        if took < max(_LATE * timeout, _LONG):
            return ""
        stopped = sum(row.error is not None for row in rows)
        return (
            f"{long} with timeout={timeout:.3g} went on for {took:.3g} s ({stopped} rows were "
            "stopped): look at the time between any two pieces of work"
        )

    _not_each_time(strike)


def _keeps_tokens(subject: Subject, long: Long, prompts: Sequence[str], option: str) -> None:
    """Stop it at several times: at one of them a row has tokens that has not ended."""
    shares = iter(_SHARES)

    def strike() -> str:
        seconds = next(shares) * long.seconds
        rows, _ = _STOP[option](subject, long, prompts, seconds)
        stopped = [row for row in rows if row.error is not None]
        if not stopped or any(row.answer.tokens for row in stopped):
            return ""
        return (
            f"{long}, stopped by its {option} {seconds:.3g} s behind the call, of "
            f"{long.seconds:.3g}, and several times before that, never had a row with tokens that "
            "had not ended: a row that is stopped keeps those it had"
        )

    _not_each_time(strike)


def _late(
    subject: Subject, long: Long, prompts: Sequence[str], seconds: float
) -> tuple[list[Row], float]:
    rows, took = timed(subject, long.way, subject.model, prompts, long.tokens, timeout=seconds)
    kinds = {type(row.error) for row in rows} - {type(None)}
    must(kinds <= {GenerationTimeout}, f"{long} with timeout={seconds:.3g} gave {kinds}")
    return rows, took


def _cancelled(
    subject: Subject, long: Long, prompts: Sequence[str], seconds: float
) -> tuple[list[Row], float]:
    cancel = CancelAfter()
    timer = threading.Timer(seconds, setattr, (cancel, "now", True))
    timer.start()
    found = timed(subject, long.way, subject.model, prompts, long.tokens, cancel=cancel)
    timer.cancel()
    return found


_STOP = {"timeout": _late, "cancel": _cancelled}


def _not_each_time(strike: Callable[[], str]) -> None:
    """Raise `Violation` when something is wrong as often as it is tried."""
    wrong = ""
    for _ in range(_TRIES):
        wrong = strike()
        if not wrong:
            return
    must(False, wrong)
