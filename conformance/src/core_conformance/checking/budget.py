"""The passes of the model that a check may spend: few on a slow model, so that a run stays short.

The report lists, by check, the cases that a sweep skips for lack of passes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from textwrap import shorten
from typing import TypeVar
from weakref import WeakKeyDictionary

from core.protocols import Capability
from core_conformance.checking.check import leave_out
from core_conformance.checking.subject import Subject

T = TypeVar("T")

_TRUST = 4.0  # passes: the weight of the measured pass against the measured cases
_TEXT = "number {} of some lines that are about as long as the prompts of most of the checks are"
_SHOWN = 40  # characters of a case that is left out
_measured: WeakKeyDictionary[Subject, float] = WeakKeyDictionary()


def passes(subject: Subject) -> int:
    """Return the number of passes, each of a prompt of some twenty tokens, for one sweep."""
    effort = subject.effort
    if effort.deep:
        return 10**9
    return max(effort.least, int(effort.seconds / pass_seconds(subject)))


def pass_seconds(subject: Subject) -> float:
    """Return the time of one pass, measured once for a subject.

    The median of three different prompts.
    """
    if subject not in _measured:
        _measured[subject] = max(1e-6, statistics.median(_timed(subject, i) for i in range(4)))
    return _measured[subject]


def within(
    subject: Subject,
    cases: Iterable[T],
    cost: Callable[[T], float],
    what: str,
    share: float = 1.0,
) -> Iterator[T]:
    """Yield the cases of a sweep that fit into its passes, in order.

    The others are recorded as left out.

    ``cost`` is the number of passes that a case takes, as far as can be said beforehand: what the
    cases so far took tells what the next one takes. The first case runs, whatever it takes: a sweep
    always looks at something. A dear case that does not fit is left out alone: cheaper ones after
    it still run. ``share``: of the passes for one check, as sweeps of many areas add up.
    """
    seconds_a_pass, cut = pass_seconds(subject), list[T]()
    left, priced, spent = share * passes(subject) * seconds_a_pass, _TRUST, _TRUST * seconds_a_pass
    for case in cases:
        price = cost(case)
        if priced > _TRUST and price * spent / priced > left:
            cut.append(case)
            continue
        start = time.perf_counter()
        yield case
        seconds = time.perf_counter() - start
        left, priced, spent = left - seconds, priced + price, spent + seconds
    if cut:
        shown = ", ".join(shorten(str(case), _SHOWN) for case in cut[:8])
        shown += f" and {len(cut) - 8} more" if cut[8:] else ""
        leave_out(f"{what}: {shown}")


def _timed(subject: Subject, number: int) -> float:
    prompt, model = _TEXT.format(number), subject.model
    start = time.perf_counter()
    if subject.classifies:
        model.classify([prompt])
    elif subject.declares(Capability.BATCH_GENERATE):
        model.batch_generate([prompt], max_tokens=1)
    elif subject.declares(Capability.GENERATE):
        list(model.generate(prompt, max_tokens=1))
    return time.perf_counter() - start
