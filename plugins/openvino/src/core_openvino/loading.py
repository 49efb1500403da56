"""Loading a model, for a process that may do it. Imports openvino."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from core.options import LoadConfig
from core.system.limited_files import hold
from core.types import Choice
from core_openvino.loaded import load
from core_openvino.model import OpenVinoModel
from core_runtime.owner import FirstProcess, OwnerThread
from core_runtime.request import forget_frames

_first_process = FirstProcess("OpenVINO")  # a fork has none of its threads: a pass would hang


def open_model(
    backend: str, path: str | os.PathLike[str], config: LoadConfig, chosen: Sequence[Choice]
) -> OpenVinoModel:
    """Load a model on its own thread. Raises `core.ModelError`, `core.OptionError`."""
    _first_process.check(backend)
    _first_process.mark()
    owners: list[OwnerThread] = []
    try:
        hold(owners, partial(OwnerThread, backend))
        loaded = owners[0].run(lambda: load(backend, path, config, chosen))
        return OpenVinoModel(backend, loaded, owners[0])
    except BaseException as error:
        forget_frames(error)  # else a reference to the error keeps the weights alive
        for owner in owners:
            owner.stop()
        raise
