"""The thread count of matrix products: one per free core, or only the calling thread.

OpenBLAS has one number for the process. A number from the environment (`NUMBERS`) is kept, whatever
the load; one set by the program is the maximum from then on. Any BLAS other than OpenBLAS with its
own threads keeps its number: OpenMP has one per thread, and other libraries were not tried.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from core_mlx_native.cpu.blas import blas_report
from core_mlx_native.cpu.linker import has_symbol
from core_runtime.machine import FreeCores, usable_cores

_OWN_THREADS = 1  # openblas_get_parallel(): 0 none, 1 pthreads, 2 OpenMP
_PREFIXES = ("scipy_openblas", "openblas")
NUMBERS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""Environment variables from which OpenBLAS takes its number."""


@dataclass(frozen=True, slots=True)
class ThreadCount:
    """The process-wide thread count of a library."""

    get: Callable[[], int]
    set: Callable[[int], None]


_lock = threading.Lock()
_users = 0
_before = 1
_followed: FreeCores | None = None


def product_threads() -> int:
    """Return the maximum of threads per product if it can be changed; else 1."""
    threads = _threads()
    with _lock:
        if threads is None:
            return 1
        return _followed.most if _followed else _before if _users else threads.get()


def follow_load() -> None:
    """Set the thread count of later products to the number of free cores.

    Does nothing within a tenth of a second of the previous call.
    """
    threads = _threads()
    if threads is None or _asked_for():
        return
    with _lock:
        if not _users:
            _follow(threads)


def free_of(cores: int) -> int:
    """Return the number of these cores that parallel work started now may use."""
    return min(cores, _followed.number) if _followed else cores


def _follow(threads: ThreadCount) -> None:
    global _followed
    now = threads.get()
    if _followed is None or now != _followed.number:  # the program has changed the number
        _followed = FreeCores(min(now, usable_cores()))
    number = _followed.look()
    if number != now:
        threads.set(number)


def _asked_for() -> bool:
    return any(os.environ.get(name) for name in NUMBERS)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Run every product of the process on its calling thread within this context.

    Several threads may enter it at once: the last one to leave restores the number.
    """
    threads = _threads()
    if threads is None:
        yield
        return
    _enter(threads)
    try:
        yield
    finally:
        _leave(threads)


def _enter(threads: ThreadCount) -> None:
    global _users, _before
    with _lock:
        if not _users:
            _before = threads.get()
            threads.set(1)
        _users += 1


def _leave(threads: ThreadCount) -> None:
    global _users
    with _lock:
        _users -= 1
        if not _users:
            threads.set(_before)


@cache
def _threads() -> ThreadCount | None:
    """Find the thread functions of the BLAS that MLX uses; None if it has none.

    The library is loaded before `mlx.core`, so the answer does not change.
    """
    if not blas_report().active:
        return None
    library = ctypes.CDLL(blas_report().path)
    for prefix in _PREFIXES:
        if has_symbol(library, f"{prefix}_get_parallel"):
            if getattr(library, f"{prefix}_get_parallel")() != _OWN_THREADS:
                return None
            get = getattr(library, f"{prefix}_get_num_threads")
            return ThreadCount(get, getattr(library, f"{prefix}_set_num_threads"))
    return None
