"""Loading a model, for a process that may do it. Imports llama_cpp."""

from __future__ import annotations

import os
from collections.abc import Sequence

from core.errors import BackendUnavailableError
from core.options import LoadConfig
from core.serving.owner import AFTER_FORK
from core.types import Choice
from core_llama_cpp.ggml import GgmlDevice
from core_llama_cpp.loader import load
from core_llama_cpp.model import LlamaModel

_process: int | None = None  # the one that llama.cpp first computed in


def open_model(
    backend: str,
    path: str | os.PathLike[str],
    config: LoadConfig,
    gpus: Sequence[GgmlDevice],
    chosen: Sequence[Choice],
) -> LlamaModel:
    """Load; ``chosen`` are the choices made before. Raises `ModelError`, `OptionError`."""
    global _process
    if _process not in (None, os.getpid()):  # OpenMP's threads are not copied: a pass would hang
        raise BackendUnavailableError(backend, AFTER_FORK)
    loaded = load(backend, path, config, gpus, chosen)
    _process = os.getpid()
    return LlamaModel(backend, loaded)
