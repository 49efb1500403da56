"""Time by part of a program, in one thread or in lanes that run side by side."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

PRODUCTS = "matrix products"
HEAD = "head"
WAITING = "lanes waiting for one another"
REST = "the rest: sums, masks, batches, results"
Call = Callable[..., Any]


class Clock:
    """Seconds by part: each the time within it, less that of the parts within."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.operations: defaultdict[str, int] = defaultdict(int)
        self._open, self._since = [REST], time.perf_counter()

    def enter(self, part: str) -> None:
        """Time counts for this part from now on."""
        self._switch()
        self._open.append(part)

    def leave(self) -> None:
        """And for the part around it again."""
        self._switch()
        self._open.pop()

    def within(self, part: str) -> bool:
        """Whether this part, or one within it, is what runs."""
        return part in self._open

    def restart(self) -> None:
        """Forget what was measured."""
        self.seconds.clear()
        self.operations.clear()
        self._since = time.perf_counter()

    def stop(self) -> None:
        """Count what has passed."""
        self._switch()

    def add(self, lanes: Sequence[Clock]) -> None:
        """Count what passed as what the lanes did meanwhile, a share of each's, and waited."""
        now = time.perf_counter()
        waited = now - self._since
        for lane in lanes:
            for part, seconds in lane.seconds.items():
                self.seconds[part] += seconds / len(lanes)
                waited -= seconds / len(lanes)
            for part, operations in lane.operations.items():
                self.operations[part] += operations
        self.seconds[WAITING] += waited
        self._since = now

    def _switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now


class Clocks:
    """The clock of each thread: a lane's own, or else the one of the whole."""

    def __init__(self) -> None:
        self.whole = Clock()
        self._here = threading.local()

    @property
    def here(self) -> Clock:
        """This thread's."""
        found: Clock = getattr(self._here, "clock", self.whole)
        return found

    def run_lanes(self, run: Call, jobs: Sequence[Call], *rest: Any) -> Any:
        """``lanes.run``, with a clock for each job."""
        clocks: list[Clock] = []
        self.whole.stop()
        found = run([partial(self._in_lane, clocks, job) for job in jobs], *rest)
        self.whole.add(clocks)
        return found

    def _in_lane(self, clocks: list[Clock], job: Call, *args: Any) -> Any:
        self._here.clock = clock = Clock()
        clocks.append(clock)
        try:
            return job(*args)
        finally:
            clock.stop()
            del self._here.clock


def timed(clocks: Clocks, part: str, call: Call, operations: Call | None = None) -> Call:
    """The same call, waited for before and behind it; ``operations`` counts those of a product.

    The head's product is the head's.
    """
    import mlx.core as mx

    @wraps(call)
    def within(*args: Any, **options: Any) -> Any:
        mx.eval([a for a in args if isinstance(a, mx.array)])
        clock = clocks.here
        name = HEAD if clock.within(HEAD) else part
        clock.enter(name)
        try:
            found = call(*args, **options)
            mx.eval(found if isinstance(found, mx.array | list | tuple) else [])
        finally:
            clock.leave()
        if operations:
            clock.operations[name] += operations(*args)
        return found

    return within
