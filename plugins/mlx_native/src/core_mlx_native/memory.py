"""MLX's memory controls, under MLX's names, for all models of this process together.

Sizes are in bytes. Importing this module does not import MLX; the first call does, after the BLAS.

On a CPU, MLX allocates and frees every array through the C library, and glibc returns large blocks,
and those at the top of its heap, to the system at once. A pass of ``classify`` then gets the same
pages repeatedly, each cleared first: 8% of its time, and most of the variation between runs. So
freed memory is kept for the next arrays.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from core import validate

# <malloc.h> of glibc
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = {
    _M_MMAP_THRESHOLD: 32 << 20,  # the largest allowed value
    _M_TRIM_THRESHOLD: 256 << 20,  # a few times the working memory of a pass
    _M_TOP_PAD: 64 << 20,
}
_OWN_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")
_lock = threading.Lock()  # for reading a limit, which MLX reports only when it is set
_UNLIMITED = 2**62


@cache
def keep_freed_memory() -> bool:
    """Tell glibc to keep freed memory, once for this process.

    Returns False if that is not possible, or the user has set these parameters.
    """
    set_option = _function("mallopt")
    if set_option is None or _tuned_by_user():
        return False
    taken = [set_option(option, value) for option, value in _KEPT.items()]
    return all(taken)


def give_back() -> None:
    """Give the memory that glibc keeps back to the system."""
    if trim := _function("malloc_trim"):
        trim(0)


def _tuned_by_user() -> bool:
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(name in os.environ for name in _OWN_SETTINGS)


def _function(name: str) -> ctypes._NamedFuncPointer | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None), name, None)


def get_active_memory() -> int:
    """Return the bytes that arrays use now."""
    return int(_mlx().get_active_memory())


def get_peak_memory() -> int:
    """Return the peak of bytes in arrays since the start or the last `reset_peak_memory`."""
    # MLX's own peak is 0 after a reset until something is allocated.
    return max(int(_mlx().get_peak_memory()), get_active_memory())


def get_cache_memory() -> int:
    """Return the unused bytes that MLX keeps for later arrays."""
    return int(_mlx().get_cache_memory())


def reset_peak_memory() -> None:
    """Reset the memory peak."""
    _mlx().reset_peak_memory()


def clear_cache() -> None:
    """Give unused memory of MLX and glibc back to the system."""
    _mlx().clear_cache()
    give_back()


def get_cache_limit() -> int:
    """Return the limit of unused memory that MLX keeps, in bytes."""
    return _read(_mlx().set_cache_limit)


def set_cache_limit(limit: int) -> int:
    """Set the limit of unused memory in bytes, 0 for none; return the previous limit.

    Raises `InvalidOptionError`.
    """
    return _set("set_cache_limit", _mlx().set_cache_limit, limit)


def get_memory_limit() -> int:
    """Return the bytes that arrays may hold before MLX waits for running work to free some."""
    return _read(_mlx().set_memory_limit)


def set_memory_limit(limit: int) -> int:
    """Set the limit of arrays' memory in bytes; return the previous limit.

    Raises `InvalidOptionError`.
    """
    return _set("set_memory_limit", _mlx().set_memory_limit, limit)


def get_wired_limit() -> int:
    """Return the bytes that MLX keeps from being paged out (macOS 15 and later, else 0)."""
    with _lock:
        previous = int(_mlx().set_wired_limit(0))
        _mlx().set_wired_limit(previous)
    return previous


def set_wired_limit(limit: int) -> int:
    """Set the limit of wired memory in bytes; return the previous limit.

    It has no effect off Metal. Raises `InvalidOptionError`.
    """
    return _set("set_wired_limit", _mlx().set_wired_limit, limit)


def wire_large_models() -> None:
    """Keep arrays from being paged out if they use much of Metal's recommended memory.

    mlx-lm does so for every model. A limit that is already set is kept. It need not be undone: it
    is an upper bound and uses no memory itself.
    """
    mx = _mlx()
    if not mx.metal.is_available():
        return
    recommended = int(mx.device_info(mx.gpu).get("max_recommended_working_set_size", 0))
    if get_active_memory() > recommended // 2 and not get_wired_limit():
        mx.set_wired_limit(recommended)


def device_info() -> dict[str, str | int]:
    """Return MLX's description of its default device."""
    return dict(_mlx().device_info())


@cache
def _mlx() -> ModuleType:
    from core_mlx_native.cpu.blas import ensure_blas

    ensure_blas()  # before anything imports mlx.core
    import mlx.core as mx

    return mx


def _read(setter: Callable[[int], Any]) -> int:
    with _lock:  # unlimited for a moment, so that running work is not delayed
        previous = int(setter(_UNLIMITED))
        setter(previous)
    return previous


def _set(name: str, setter: Callable[[int], Any], limit: int) -> int:
    checked = validate.integer(name, limit, 0, _UNLIMITED)
    with _lock:
        return int(setter(checked))
