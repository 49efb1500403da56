"""Memory that MLX's arrays leave behind on a CPU, kept for the next ones.

MLX asks the C library for every array there and returns it, and glibc hands what is returned at the
top of its heap, or is large, to the system at once. A pass of ``classify`` then gets the same pages
again and again, each cleared first: 8 % of its time, and most of the spread between its runs.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

# <malloc.h> of glibc
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = {
    _M_MMAP_THRESHOLD: 32 << 20,  # the most it takes
    _M_TRIM_THRESHOLD: 256 << 20,  # a few times what a pass works in
    _M_TOP_PAD: 64 << 20,
}
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")


@cache
def keep_freed_memory() -> bool:
    """Tell glibc, once for this process; false where that is not possible or not wanted."""
    set_option = _function("mallopt")
    if set_option is None or _settled_by_user():
        return False
    taken = [set_option(option, value) for option, value in _KEPT.items()]
    return all(taken)


def give_back() -> None:
    """Return what is kept to the system."""
    if trim := _function("malloc_trim"):
        trim(0)


def _settled_by_user() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(name in os.environ for name in _OWN_SETTINGS)


def _function(name: str) -> ctypes._NamedFuncPointer | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), name, None)
