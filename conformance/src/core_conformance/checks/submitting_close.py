"""Checks that a submitted request ends when its stream is closed."""

from __future__ import annotations

import time

from core.options import GenerateConfig
from core.protocols import Capability
from core_conformance.checking.ask import submitting
from core_conformance.checking.calls import CancelAfter, longest, unless_refused
from core_conformance.checking.check import check, leave_out, must
from core_conformance.checking.subject import Subject

_LOOK, _TOKENS, _FEW_LOOKS = 0.003, 48, 12  # seconds; tokens; looks of a request
_MOST = 0.75  # of the looks that are left when it is closed
_ALONE = 0.25  # seconds without a look, after which polling has ended


class SlowLooks(CancelAfter):
    """A cancel that is never set, and whose looks take their time."""

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        time.sleep(_LOOK)
        return super().is_set()


@check(
    "submitting.close-stops",
    "A submitted request whose stream is closed MUST end, not run on without a reader",
    Capability.SUBMITTING,
)
def closed_requests_end(subject: Subject) -> None:
    prompt, _ = longest(subject)
    with unless_refused("cancel"):
        calm, witness = SlowLooks(), SlowLooks()
        whole = submitting(subject).submit(prompt, _options(calm))
        list(whole)
        stream = submitting(subject).submit(prompt, _options(witness))
        next(stream, None)
        stream.close()
        before, seen = witness.seen, -1
        while seen != witness.seen:
            seen = witness.seen
            time.sleep(_ALONE)
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
