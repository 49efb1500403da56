"""Starting a model's owner thread and loading the model on it. Imports MLX."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import mlx.core as mx

from core.errors import BackendUnavailableError, OutOfMemoryError
from core.options import LoadConfig
from core.serving.failures import forget_frames
from core.serving.owner import OwnerThread
from core.types import Choice
from core_mlx_native import allocator, memory
from core_mlx_native.failures import is_out_of_memory
from core_mlx_native.loader import load
from core_mlx_native.model import MlxModel

AFTER_FORK = (
    "MLX was used in the process that this one was forked from, and does not work in a fork. "
    "Start processes with multiprocessing.get_context('spawn'), and load the model in each."
)
_process: int | None = None  # the one that MLX was first used in


def open_model(
    backend: str, directory: Path, config: LoadConfig, on_gpu: bool, chosen: Sequence[Choice]
) -> MlxModel:
    """Load on a thread of the model's own; when that fails, leave no thread behind."""
    global _process
    if _process not in (None, os.getpid()):
        raise BackendUnavailableError(backend, AFTER_FORK)
    _process = os.getpid()
    device = mx.Device(mx.gpu if on_gpu else mx.cpu)
    if not on_gpu:
        allocator.keep_freed_memory()
    owner = OwnerThread(directory.name, partial(mx.stream, device), mx.synchronize)
    try:
        loaded = owner.run(lambda: load(directory, config, on_gpu))
    except BaseException as error:
        forget_frames(error)  # else whoever keeps the error keeps what was loaded so far
        owner.close(memory.clear_cache)
        if isinstance(error, MemoryError | RuntimeError) and is_out_of_memory(error):
            raise OutOfMemoryError(
                f"{directory} does not fit the device's memory. Close other models, or load it "
                "in a smaller dtype: options={'dtype': 'bfloat16'}."
            ) from error
        raise
    return MlxModel(backend, replace(loaded, choices=(*chosen, *loaded.choices)), owner)
