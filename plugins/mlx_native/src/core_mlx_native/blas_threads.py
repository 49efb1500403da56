"""How many threads a matrix product takes: all that OpenBLAS has, or the one that asks for it.

Another BLAS than an OpenBLAS with threads of its own keeps what it has: OpenMP's number belongs to
each thread, and no other library was tried.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from core_mlx_native.blas import blas_report
from core_mlx_native.linker import has_symbol

_OWN_THREADS = 1  # what openblas_get_parallel() says: 0 none, 1 pthreads, 2 OpenMP
_PREFIXES = ("scipy_openblas", "openblas")


@dataclass(frozen=True, slots=True)
class Threads:
    """The number that a library takes, which is one for the whole process."""

    get: Callable[[], int]
    set: Callable[[int], None]


_lock = threading.Lock()
_users = 0
_before = 1


def product_threads() -> int:
    """How many threads a product takes now, where that can be changed; else 1."""
    threads = _threads()
    with _lock:
        return 1 if threads is None else _before if _users else threads.get()


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Every product runs on the thread that asks for it, in the whole process, while this is open.

    From several threads at once, too: the last one out puts back what was there before.
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
    """Of the library in front of MLX; it is there before `mlx.core` is."""
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
