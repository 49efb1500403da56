"""The threads of a matrix product: one for each core that is free, or the one that asks.

OpenBLAS has one number for the whole process. One that the environment asks for (`NUMBERS`) stays,
whatever the load; one that the program itself sets is the most from then on. Another BLAS than an
OpenBLAS with threads of its own keeps what it has: OpenMP's number belongs to each thread, and no
other library was tried.
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

_OWN_THREADS = 1  # what openblas_get_parallel() says: 0 none, 1 pthreads, 2 OpenMP
_PREFIXES = ("scipy_openblas", "openblas")
NUMBERS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables of the environment that OpenBLAS takes its number from."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The number that a library takes, which is one for the whole process."""

    get: Callable[[], int]
    set: Callable[[int], None]


_lock = threading.Lock()
_users = 0
_before = 1
_followed: FreeCores | None = None


def product_threads() -> int:
    """The most threads that a product takes, where that can be changed; else 1."""
    threads = _threads()
    with _lock:
        if threads is None:
            return 1
        return _followed.most if _followed else _before if _users else threads.get()


def follow_load() -> None:
    """Have the products to come take as many threads as there are free cores.

    Costs nothing when it was called less than a tenth of a second ago.
    """
    threads = _threads()
    if threads is None or _asked_for():
        return
    with _lock:
        if not _users:
            _follow(threads)


def free_of(cores: int) -> int:
    """The number of these cores that work shared out now may take."""
    return min(cores, _followed.number) if _followed else cores


def _follow(threads: Threads) -> None:
    global _followed
    now = threads.get()
    if _followed is None or now != _followed.number:  # the program has set another
        _followed = FreeCores(min(now, usable_cores()))
    number = _followed.look()
    if number != now:
        threads.set(number)


def _asked_for() -> bool:
    return any(os.environ.get(name) for name in NUMBERS)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """While this is open, every product in the process runs on the thread that asks for it.

    Several threads may open it at once: the last one out puts back the number from before.
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


def _enter(threads: Threads) -> None:
    global _users, _before
    with _lock:
        if not _users:
            _before = threads.get()
            threads.set(1)
        _users += 1


def _leave(threads: Threads) -> None:
    global _users
    with _lock:
        _users -= 1
        if not _users:
            threads.set(_before)


@cache
def _threads() -> Threads | None:
    """Find the thread functions of the library in front of MLX; None where it has none.

    The library is there before `mlx.core` is, so the answer does not change.
    """
    if not blas_report().active:
        return None
    library = ctypes.CDLL(blas_report().path)
    for prefix in _PREFIXES:
        if has_symbol(library, f"{prefix}_get_parallel"):
            if getattr(library, f"{prefix}_get_parallel")() != _OWN_THREADS:
                return None
            get = getattr(library, f"{prefix}_get_num_threads")
            return Threads(get, getattr(library, f"{prefix}_set_num_threads"))
    return None
