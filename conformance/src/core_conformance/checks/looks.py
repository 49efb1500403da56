"""Checks that cancel and timeout are polled throughout a call, not only at its beginning.

The call takes long enough to see that: its size comes from the model's speed. No piece of it may
go without a look for most of its time.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from core.errors import GenerationCancelled, GenerationTimeout, UnsupportedOptionError
from core.protocols import Capability
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING
from core_conformance.checking.budget import pass_seconds, within
from core_conformance.checking.calls import CancelAfter, unless_refused
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, READERS, asked, timed, undisturbed
from core_conformance.checking.ways.table import Row, Way, ways

_LONG = 0.03  # seconds of a call in which something can be seen
_POINTS = (("cancel", 0.2, 0.75), ("cancel", 0.55, 0.95), ("timeout", 0.2, 0.75))
"""What comes when a share of the time is over; and the share of the work that is done then."""

_KINDS = {"cancel": GenerationCancelled, "timeout": GenerationTimeout}
_TRIES, _STRIKES = 6, 3  # more than a machine's noise explains
_SHARES = (0.6, 0.75, 0.5, 0.85, 0.7, 0.4)  # of a batch of which one row has ended
_FEW, _SOME = 2, 8  # rows of a batch, so few that they run at once; and tokens
_FEW_LOOKS = 12  # of a call: between two of them lies too much of it
_LEAST_ROWS, _MOST_ROWS = 160, 2000
_LEAST_TOKENS = 24


@dataclass(frozen=True, slots=True)
class Long:
    """An operation with enough prompts and tokens to take an expected ``seconds``."""

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
    READERS[:-1],
    broad=True,
)
def reading(subject: Subject) -> None:
    _look_at(subject, [_reading(subject, way) for way in ways(subject, *READERS[:-1])])


def _generation(subject: Subject, way: Way) -> Long:
    rows = 1 if way.single else _FEW
    begin, step = (_seconds(subject, way, rows, count) for count in (1, 1 + _SOME))
    token_seconds = max(1e-6, (step - begin) / _SOME)
    most = subject.model.info.context_length // 2
    tokens = min(most, max(_LEAST_TOKENS, math.ceil(2 * _LONG / token_seconds)))
    return Long(way, rows, tokens, max(2 * _LONG, begin + token_seconds * tokens))


def _reading(subject: Subject, way: Way) -> Long:
    row_seconds = _seconds(subject, way, _SOME, 1) / _SOME
    rows = min(_MOST_ROWS, max(_LEAST_ROWS, math.ceil(2 * _LONG / row_seconds)))
    return Long(way, rows, 1, max(2 * _LONG, row_seconds * rows))


def _seconds(subject: Subject, way: Way, rows: int, tokens: int) -> float:
    runs = (timed(subject, way, subject.model, asked(rows), tokens) for _ in range(2))
    return max(1e-6, min(took for _, took in runs))


def _look_at(subject: Subject, calls: list[Long]) -> None:
    one = pass_seconds(subject)
    calls.sort(key=lambda long: long.seconds)
    for planned in within(subject, calls, lambda long: 3 * long.seconds / one, "long calls"):
        long, whole, seconds = _whole(subject, planned)
        prompts = asked(long.rows)
        undisturbed(whole, str(long))

        if long.way.generates:
            goes_on(subject, [row.answer.tokens for row in whole], Capability(long.way.name))
        else:
            empty = [row for row in whole if not (row.answer.tokens or row.numbers)]
            must(not empty, f"{long} gave {len(empty)} rows nothing")

        if seconds < _LONG:
            leave_out(f"{long}: it takes {seconds:.3f} s, in which little can be seen")
            continue

        # A cancel and a timeout, early and late.
        for option, share, most in _POINTS:
            with unless_refused(option):
                _stops(subject, long, prompts, seconds, option, share, most * _work(whole))

        # What a row had when it was stopped.
        if long.way.name is Capability.BATCH_GENERATE:
            for option in _KINDS:
                with suppress(UnsupportedOptionError):  # this one, or the stop string
                    _keeps(subject, long, prompts, whole, option)


def _whole(subject: Subject, long: Long) -> tuple[Long, list[Row], float]:
    """Run the call undisturbed, and a larger one where that was faster than was expected."""
    most = subject.model.info.context_length // 2
    while True:
        prompts = asked(long.rows)
        whole, seconds = timed(subject, long.way, subject.model, prompts, long.tokens)
        larger = (
            replace(long, tokens=min(most, 2 * long.tokens))
            if long.way.generates
            else replace(long, rows=min(_MOST_ROWS, 2 * long.rows))
        )
        if seconds >= _LONG or larger == long:
            return long, whole, seconds
        long = larger


def _stops(
    subject: Subject,
    long: Long,
    prompts: Sequence[str],
    seconds: float,
    option: str,
    share: float,
    most: float,
) -> None:
    """Stop it when a share of its time is over: then not ``most`` of its work is done."""
    wrong = []
    for _ in range(_TRIES):
        rows, took, on_time = _stopped(subject, long, prompts, share * seconds, option)
        if not on_time:
            continue
        if _work(rows) <= most:
            must(True, "")
            return
        wrong.append(f"{share * seconds:.3g} of {took:.3g} s")
        seconds = min(seconds, took)  # it is faster than it was
    must(
        len(wrong) < _STRIKES,
        f"{long} did all its work though its {option} came after {', '.join(wrong)}: check it "
        "between any two pieces of work",
    )


def _keeps(
    subject: Subject, long: Long, prompts: Sequence[str], whole: Sequence[Row], option: str
) -> None:
    """Stop a batch whose first row has ended by then, and the other has not."""
    first, other = (row.answer for row in whole)
    early = "".join(token.text for token in first.tokens[2:6])
    short = len(other.tokens) < _LEAST_TOKENS  # it may end as soon as the first
    wavers = not early or "\ufffd" in early or early in other.text
    if short or wavers or first.text.find(early) < 1:
        leave_out(f"whether a {option} leaves finished rows whole: no row ends early")
        return
    options: dict[str, Any] = {"stop": (early,)}
    way, model, calm = long.way, subject.model, CancelAfter()
    with suppress(UnsupportedOptionError):  # a timeout may do without
        timed(subject, way, model, prompts, long.tokens, **options, cancel=calm)
        if calm.seen < _FEW_LOOKS:
            leave_out(f"whether a {option} leaves finished rows whole: {calm.seen} looks")
            return
    seconds = timed(subject, way, model, prompts, long.tokens, **options)[1]

    wrong = []
    for share in _SHARES * 2:
        if option == "cancel":  # by looks, whatever the machine does meanwhile
            options["cancel"] = CancelAfter(int(share * calm.seen))
        else:
            options["timeout"] = share * seconds
        rows, took = timed(subject, way, model, prompts, long.tokens, **options)
        if rows[1].error is None:
            seconds = min(seconds, took)
        elif rows[0].error is None and rows[0].answer.tokens and rows[1].answer.tokens:
            must(True, "")
            return
        else:
            wrong.append(f"at {share:.0%}: {rows!r:.300}")
    must(
        len(wrong) < 2,
        f"{long}, one row of which ends early, the other late, is stopped by its {option}: a row "
        f"keeps the tokens it had, and what has ended stays whole; but {'; '.join(wrong)}",
    )


def _stopped(
    subject: Subject, long: Long, prompts: Sequence[str], seconds: float, option: str
) -> tuple[list[Row], float, bool]:
    """Return the rows, how long they took, and whether the stop came when it was to come."""
    cancel, start, came = CancelAfter(), time.perf_counter(), list[float]()

    def come() -> None:
        cancel.now = True
        came.append(time.perf_counter() - start)

    timer = threading.Timer(seconds, come)
    stop: dict[str, Any] = {"timeout": seconds} if option == "timeout" else {"cancel": cancel}
    timer.start()
    rows, took = timed(subject, long.way, subject.model, prompts, long.tokens, **stop)
    timer.cancel()
    kinds = {type(row.error) for row in rows} - {type(None)}
    must(kinds <= {_KINDS[option]}, f"{long}, stopped by its {option}, gave {kinds}")
    return rows, took, option == "timeout" or bool(came and came[0] < 1.3 * seconds)


def _work(rows: Sequence[Row]) -> int:
    """Return the amount of work done: tokens, or prompts that were read."""
    return sum(len(row.answer.tokens) or row.error is None for row in rows)
