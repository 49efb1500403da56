"""Loading a model, for a process that may do it. Imports llama_cpp."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from core.options import LoadConfig
from core.system.limited_files import hold
from core.types import Choice
from core_llama_cpp.ggml import GgmlDevice
from core_llama_cpp.loaded import load
from core_llama_cpp.model import LlamaModel
from core_runtime.owner import FirstProcess, OwnerThread

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
    owners, loaded = list[OwnerThread](), None

    # On any exception, also an interrupt, neither the thread nor the model is left.
    try:
        hold(owners, partial(OwnerThread, backend))
        loaded = load(backend, path, config, gpus, chosen)
        _first_process.mark()
        return LlamaModel(backend, loaded, owners[0])
    except BaseException:
        for owner in owners:
            owner.close(loaded.close if loaded else lambda: None)
        raise
