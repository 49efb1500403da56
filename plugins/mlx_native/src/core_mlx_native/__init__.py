"""MLX backends for core: ``metal``, ``mlx_cuda`` and ``mlx_cpu``.

Users reach them through ``core.load_model(path, backend="mlx_cpu")``; importing this package does
not import MLX. It exports MLX's memory controls.
"""

from __future__ import annotations

from core_mlx_native.memory import (
    clear_cache,
    device_info,
    get_active_memory,
    get_cache_limit,
    get_cache_memory,
    get_memory_limit,
    get_peak_memory,
    get_wired_limit,
    reset_peak_memory,
    set_cache_limit,
    set_memory_limit,
    set_wired_limit,
)

__all__ = [
    "clear_cache",
    "device_info",
    "get_active_memory",
    "get_cache_limit",
    "get_cache_memory",
    "get_memory_limit",
    "get_peak_memory",
    "get_wired_limit",
    "reset_peak_memory",
    "set_cache_limit",
    "set_memory_limit",
    "set_wired_limit",
]
