"""Parallel passes on a CPU: each lane is a core that runs its own pass.

A pass on all cores uses them only in matrix products, whose threads synchronise at each one and
sleep in between; MLX computes everything else on one core. Lanes share nothing and synchronise
once, at the end: about 15% less time on two cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache, partial
from typing import TypeVar

import mlx.core as mx

from core.kit.base import Check
from core_mlx_native.cpu.blas_threads import one_thread_each, product_threads
from core_runtime.machine import usable_cores
from core_runtime.threads import LOOK_SECONDS, begin

T = TypeVar("T")
Job = Callable[[Check], T]  # calls the check occasionally; it may raise

_here = threading.local()


class _OverError(Exception):
    """The failure of another lane, which makes this one's work unnecessary."""


def usable_lanes() -> int:
    """Return the number of cores that may each run a lane.

    It is 1 if products cannot be limited to one core.
    """
    return min(usable_cores(), product_threads())


def in_lane() -> bool:
    """Return True if this thread runs a lane, which must use only one core."""
    return getattr(_here, "lane", False)


def run(jobs: Sequence[Job[T]], check: Check) -> list[T]:
    """Run each job in its own lane, the first on this thread; only it calls ``check``.

    A job evaluates its results. If a job fails, the others end early, and its error is raised once
    all have ended.
    """
    over = threading.Event()

    with one_thread_each():
        others = [begin(_pool(), partial(_elsewhere, job, over)) for job in jobs[1:]]

        # The first job runs here; an error from it or the check ends the others.
        try:
            first = [_in_lane(jobs[0], partial(_look, over, check))]
            while wait(others, LOOK_SECONDS).not_done:
                _look(over, check)
        except _OverError:
            first = []
        except BaseException:
            over.set()
            raise
        finally:
            wait(others)

    return first + _results(others)


def _results(futures: Sequence[Future[T]]) -> list[T]:
    """Return the results, or raise the first failure, ignoring lanes that it ended early."""
    errors = [error for future in futures if (error := future.exception()) is not None]
    for error in errors:
        if not isinstance(error, _OverError):
            raise error
    return [future.result() for future in futures]


def _elsewhere(job: Job[T], over: threading.Event) -> T:
    try:
        with mx.stream(mx.Device(mx.cpu)):
            return _in_lane(job, partial(_look, over))
    except BaseException:
        over.set()
        raise


def _in_lane(job: Job[T], check: Check) -> T:
    before, _here.lane = in_lane(), True
    try:
        return job(check)
    finally:
        _here.lane = before


def _look(over: threading.Event, check: Check | None = None) -> None:
    if over.is_set():
        raise _OverError
    if check is not None:
        check()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, usable_cores() - 1), thread_name_prefix="core-lane")
