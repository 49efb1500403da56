"""Checks of a timeout of many rows: it is the whole call's, also for rows that wait for a slot."""

from __future__ import annotations

import time

from core.errors import GenerationTimeout
from core.protocols import Capability
from core_conformance.checking.calls import CancelAfter, unless_refused
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import BATCHES, asked, timed
from core_conformance.checking.ways.table import ways

_ROWS, _TOKENS = 12, 3
_LOOK, _TIMEOUT = 0.008, 0.02  # seconds
_FACTOR, _SLACK = 4, 0.05  # a call that takes so much longer, and seconds, was not stopped


class SlowLooks(CancelAfter):
    """A cancel that is never set, and whose looks take their time: so the rows do, on any machine.

    A backend looks at least once for each token of a row.
    """

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        time.sleep(_LOOK)
        return super().is_set()


@check(
    "cancel.timeout-in-slots",
    "The timeout of a batch MUST begin with the call for every row, those that wait for a slot "
    "included",
    BATCHES,
)
def timeout_is_of_the_call(subject: Subject) -> None:
    one_slot = {"parallel_slots": 1} if subject.declares(Capability.PARALLEL) else {}
    prompts = asked(_ROWS)
    with unless_refused("timeout"), unless_refused("cancel"), subject.loaded(**one_slot) as model:
        for way in ways(subject, *BATCHES):
            cancel = SlowLooks()
            _, whole = timed(subject, way, model, prompts, _TOKENS, cancel=cancel)
            must(cancel.seen > 0, f"{way.name} never looked at its cancel")
            timeout = max(_TIMEOUT, whole / 6)
            rows, took = timed(
                subject, way, model, prompts, _TOKENS, cancel=SlowLooks(), timeout=timeout
            )
            must(len(rows) == _ROWS, f"{way.name} of {_ROWS} prompts gave {len(rows)} rows")
            errors = [row.error for row in rows]
            stopped = any(isinstance(error, GenerationTimeout) for error in errors)
            if whole < _FACTOR * timeout + _SLACK and not stopped:
                leave_out(f"{way.name}, which takes {whole:.2f} s")
                continue
            must(
                stopped or took < _FACTOR * timeout + _SLACK,
                f"{way.name} of {_ROWS} prompts with timeout={timeout:.3f} took {took:.2f} s, and "
                "no row was stopped: a row that waits for a slot has spent that time",
            )
