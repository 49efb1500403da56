"""Loading a model, for a process that may do it. Imports llama_cpp."""

from __future__ import annotations

import os
from collections.abc import Sequence

from core.options import LoadConfig
from core.types import Choice
from core_llama_cpp.ggml import GgmlDevice
from core_llama_cpp.loader import load
from core_llama_cpp.model import LlamaModel
from core_runtime.owner import FirstProcess

_first_process = FirstProcess("llama.cpp")  # OpenMP's threads are not copied: a pass would hang


def open_model(
    backend: str,
    path: str | os.PathLike[str],
    config: LoadConfig,
    gpus: Sequence[GgmlDevice],
    chosen: Sequence[Choice],
) -> LlamaModel:
    """Load a model; ``chosen`` are the choices made before. Raises `ModelError`, `OptionError`."""
    _first_process.check(backend)
    loaded = load(backend, path, config, gpus, chosen)
    _first_process.mark()
    return LlamaModel(backend, loaded)
