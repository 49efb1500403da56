"""Checks of a timeout that comes on the way: a share of the time that the whole run takes.

A machine's noise may let a run end in time or not. So both are right: the whole answer, or the
timeout with the tokens generated until then; either way the result must be consistent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import GenerationCancelled, GenerationTimeout
from core.protocols import Capability, TextModel
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import SPEAKING, Answer, read, speak, voice
from core_conformance.checking.budget import pass_seconds, within
from core_conformance.checking.calls import (
    CancelAfter,
    SlowLooks,
    greedy_options,
    promptly,
    unless_refused,
)
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.compare import same_answers
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, asked, run, same_rows, timed, undisturbed
from core_conformance.checking.ways.table import Row, Way, ways

_ROWS = 7
_TOKENS = (8, 64)  # a fast model says more: clocks and threads must not be as long as its answer
_SHARES = (0.5, 0.2, 0.8)
_TICK = 0.002 + 2 * time.get_clock_info("monotonic").resolution  # seconds: clocks are rounded
_LONG = 20 * _TICK
_WAIT = 0.02  # seconds in line
_PATIENCE, _PASSES = 4.0, 200  # seconds and passes in which one leaves the line
_STOPS = {"timeout": GenerationTimeout, "cancel": GenerationCancelled}


@dataclass(frozen=True, slots=True)
class Case:
    """An operation that takes ``seconds``, and gets a share of them as its timeout."""

    way: Way
    tokens: int
    seconds: float
    wanted: list[Row]
    share: float = 0.0

    def __str__(self) -> str:
        return f"{self.way.name} at {self.share:.0%} of its time"


@check(
    "cancel.timeout-midway",
    "A timeout that comes midway MUST leave each row whole or stopped by GenerationTimeout with "
    "the tokens it had, never come early, and leave a model that works",
    broad=True,
)
def midway(subject: Subject) -> None:
    prompts = asked(_ROWS)
    with unless_refused("timeout"):
        measured = [_measured(subject, way, prompts) for way in ways(subject)]
        cases = [replace(case, share=share) for share in _SHARES for case in measured]
        one = pass_seconds(subject)
        for case in within(subject, cases, lambda c: 2 * c.seconds / one, "timeouts midway"):
            _timed_out(subject, case, prompts)


def _measured(subject: Subject, way: Way, prompts: Sequence[str]) -> Case:
    for tokens in _TOKENS if way.generates else _TOKENS[:1]:
        runs = [timed(subject, way, subject.model, prompts, tokens) for _ in range(2)]
        undisturbed(runs[0][0], f"{way.name} of sound prompts")
        case = Case(way, tokens, min(took for _, took in runs), runs[0][0])
        if case.seconds >= _LONG:
            break
    return case


def _timed_out(subject: Subject, case: Case, prompts: Sequence[str]) -> None:
    way, timeout = case.way, case.share * case.seconds
    rows, took = timed(subject, way, subject.model, prompts, case.tokens, timeout=timeout)
    what = f"{way.name} of {len(prompts)} prompts with timeout={timeout:.4g}"
    same_rows(subject, case.wanted, rows, what, GenerationTimeout)
    for row in rows:
        _in_time(row, timeout, took, what)
    again = run(subject, way, subject.model, prompts, case.tokens)
    same_rows(subject, case.wanted, again, f"{what}, and then again without it")


def _in_time(row: Row, timeout: float, took: float, what: str) -> None:
    if row.error is None:
        return
    seconds = getattr(row.error, "seconds", None)
    must(seconds == timeout, f"{what}: GenerationTimeout.seconds is {seconds}")
    must(
        took >= timeout - _TICK,
        f"{what} raised {row.error!r} {took:.4g} s after the call: a timeout is in seconds, from "
        "the call on",
    )


# --------------------------------------------------------------------------- in line


@check(
    "cancel.waiting",
    "A request that waits in line MUST be stopped there, by its cancel and by its timeout, which "
    "begins with the call; and the one that it waits for continues",
    SPEAKING,
    broad=True,
)
def waiting(subject: Subject) -> None:
    prompts = asked(3)
    one_slot = {"parallel_slots": 1} if subject.declares(Capability.PARALLEL) else {}
    options = greedy_options(subject, _TOKENS[0])
    with subject.loaded(**one_slot) as model:
        alone = read(speak(subject, model, prompts[2], **options), prompts[2])
        goes_on(subject, [alone.tokens])
        wanted = {way: run(subject, way, model, prompts[:2], 2) for way in ways(subject)}

        # This thread keeps it open, and the others wait in separate threads.
        stream = speak(subject, model, prompts[2], **options)
        tokens = [token for token in (next(stream, None),) if token is not None]
        for way, rows in wanted.items():
            for option in ("timeout", "cancel"):
                with unless_refused(option):
                    _in_line(subject, model, way, prompts[:2], rows, option)
        answer = Answer((*tokens, *stream), stream.finish_reason)
        own = alone if voice(subject) is not Capability.CHAT else replace(alone, prompt="")
        same_answers(subject, [(own, answer)], "a stream alone, and with others queued after it")

        # Whoever gave up has given its place back as well.
        for way, rows in wanted.items():
            again = run(subject, way, model, prompts[:2], 2)
            same_rows(subject, rows, again, f"{way.name} after requests that left the line")


def _in_line(
    subject: Subject,
    model: TextModel,
    way: Way,
    prompts: Sequence[str],
    wanted: list[Row],
    option: str,
) -> None:
    cancel = CancelAfter()
    stop: dict[str, Any] = {"timeout": _WAIT} if option == "timeout" else {"cancel": cancel}
    timer = threading.Timer(_WAIT, setattr, (cancel, "now", True))
    timer.start()
    what = f"{way.name} queued after an open stream, whose {option} came after {_WAIT:g} s,"
    options = way.options(subject, 2) | stop
    patience = _PATIENCE + _PASSES * pass_seconds(subject)
    rows = promptly(subject, lambda: way.ask(model, prompts, options), what, patience)
    timer.cancel()
    same_rows(subject, wanted, rows, what, _STOPS[option])


_WAITING, _FEW_TOKENS = 12, 3
_LOOK, _TIMEOUT = 0.008, 0.02  # seconds
_FACTOR, _SLACK = 4, 0.05  # a call that takes so much longer, and seconds, was not stopped


@check(
    "cancel.timeout-in-slots",
    "The timeout of a batch MUST begin with the call for every row, those that wait for a slot "
    "included",
    BATCHES,
)
def timeout_is_of_the_call(subject: Subject) -> None:
    one_slot = {"parallel_slots": 1} if subject.declares(Capability.PARALLEL) else {}
    prompts = asked(_WAITING)
    with unless_refused("timeout"), unless_refused("cancel"), subject.loaded(**one_slot) as model:
        for way in ways(subject, *BATCHES):
            cancel = SlowLooks(_LOOK)
            _, whole = timed(subject, way, model, prompts, _FEW_TOKENS, cancel=cancel)
            must(cancel.seen > 0, f"{way.name} never looked at its cancel")
            timeout = max(_TIMEOUT, whole / 6)
            rows, took = timed(
                subject, way, model, prompts, _FEW_TOKENS, cancel=SlowLooks(_LOOK), timeout=timeout
            )
            must(len(rows) == _WAITING, f"{way.name} of {_WAITING} prompts gave {len(rows)} rows")
            errors = [row.error for row in rows]
            stopped = any(isinstance(error, GenerationTimeout) for error in errors)
            if whole < _FACTOR * timeout + _SLACK and not stopped:
                leave_out(f"{way.name}, which takes {whole:.2f} s")
                continue
            must(
                stopped or took < _FACTOR * timeout + _SLACK,
                f"{way.name} of {_WAITING} prompts with timeout={timeout:.3f} took {took:.2f} s, "
                "and no row was stopped: a row that waits for a slot has spent that time",
            )
