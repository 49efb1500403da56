"""MLX's memory controls, under MLX's own names: all of this process's models together.

Sizes are in bytes. Importing this module imports no MLX; the first call does, behind the BLAS.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from core import validate
from core_mlx_native import allocator

_lock = threading.Lock()  # for reading a limit, which MLX only tells when it is set
_UNLIMITED = 2**62


def get_active_memory() -> int:
    """What arrays hold now."""
    return int(_mlx().get_active_memory())


def get_peak_memory() -> int:
    """The most that arrays held since the start or the last `reset_peak_memory`."""
    # MLX's own is 0 behind a reset, whatever is held, until something is allocated.
    return max(int(_mlx().get_peak_memory()), get_active_memory())


def get_cache_memory() -> int:
    """What MLX keeps, unused, for arrays to come."""
    return int(_mlx().get_cache_memory())


def reset_peak_memory() -> None:
    """Start the peak anew."""
    _mlx().reset_peak_memory()


def clear_cache() -> None:
    """Give unused memory back to the system."""
    _mlx().clear_cache()
    allocator.give_back()


def get_cache_limit() -> int:
    """How much unused memory MLX keeps at most."""
    return _read(_mlx().set_cache_limit)


def set_cache_limit(limit: int) -> int:
    """Change it; the limit before. 0 keeps nothing. Raises `InvalidOptionError`."""
    return _set("set_cache_limit", _mlx().set_cache_limit, limit)


def get_memory_limit() -> int:
    """How much arrays may hold before MLX waits for running work to free some."""
    return _read(_mlx().set_memory_limit)


def set_memory_limit(limit: int) -> int:
    """Change it; the limit before. Raises `InvalidOptionError`."""
    return _set("set_memory_limit", _mlx().set_memory_limit, limit)


def get_wired_limit() -> int:
    """How much memory MLX keeps from being paged out (macOS 15 and later; else 0)."""
    with _lock:
        previous = int(_mlx().set_wired_limit(0))
        _mlx().set_wired_limit(previous)
    return previous


def set_wired_limit(limit: int) -> int:
    """Change it; the limit before. Raises `InvalidOptionError`; has no effect off Metal."""
    return _set("set_wired_limit", _mlx().set_wired_limit, limit)


def device_info() -> dict[str, str | int]:
    """What MLX says of the device that it computes on by default."""
    return dict(_mlx().device_info())


def _mlx() -> ModuleType:
    from core_mlx_native.blas import ensure_blas

    ensure_blas()  # before anything imports mlx.core
    import mlx.core as mx

    return mx


def _read(setter: Callable[[int], Any]) -> int:
    with _lock:  # unlimited for a moment, so that nobody who runs now is held up
        previous = int(setter(_UNLIMITED))
        setter(previous)
    return previous


def _set(name: str, setter: Callable[[int], Any], limit: int) -> int:
    checked = validate.integer(name, limit, 0, _UNLIMITED)
    with _lock:
        return int(setter(checked))
