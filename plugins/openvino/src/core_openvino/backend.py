"""The backend ``openvino``. Importing this module does not import OpenVINO."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.errors import CoreError, UnsupportedOptionError
from core.kit.base import BackendBase
from core.kit.support import chosen_backend
from core.options import LoadConfig
from core.types import Choice, Device
from core_openvino import availability
from core_openvino.capabilities import BACKEND_CAPABILITIES

if TYPE_CHECKING:
    from core_openvino.model import OpenVinoModel

_OWN_OPTIONS = {
    "cache_cells": "positions of the KV cache, which all requests share",
    "chat_template": "name of the chat template, if the model has several",
    "device": "CPU; GPU and NPU have not been run, and are refused",
    "dtype": "data type of the computation: auto, float32, bfloat16 or int8",
    "n_batch": "tokens of one pass; a request can be cancelled between two",
    "n_threads": "threads of one pass",
    "prefix_cache": "size of the prefix cache in bytes; 0 turns it off",
    "weight_cache": "bytes of converted weights kept on disk; 0 turns it off",
}


class OnCpu(BackendBase):
    """A backend that computes on this machine's processor, with OpenVINO."""

    def unavailable_reason(self) -> str | None:
        """Return the reason why OpenVINO cannot run, and what to do; None if it can."""
        return availability.unavailable_reason()

    def devices(self) -> Sequence[Device]:
        """Return the processor, with the instructions that OpenVINO uses on it."""
        return (availability.cpu_device(),) if self.available() else ()

    def place(self, config: LoadConfig) -> tuple[Choice, Choice]:
        """Return the choices of the backend and of the device.

        Raises `UnsupportedOptionError` for any device but the CPU; nothing else has been run.
        """
        if config.gpu_layers > 0:
            raise UnsupportedOptionError(
                "gpu_layers", self.name, "It runs on the CPU: leave gpu_layers at -1 or 0."
            )
        device = config.options.get("device", "CPU")
        if device != "CPU":
            raise UnsupportedOptionError(
                "device", self.name, f"{device!r} has not been run with it: use 'CPU'."
            )
        cpu = availability.cpu_device()
        reason = f"instructions that OpenVINO uses: {cpu.detail}"
        return chosen_backend(self.name, config), Choice("device", cpu.name, reason)


class OpenVino(OnCpu):
    """OpenVINO on the CPU. See `core.Backend`."""

    name = "openvino"
    capabilities = BACKEND_CAPABILITIES
    formats = frozenset({"safetensors", "gguf"})
    own_options = _OWN_OPTIONS

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Return the reason why this backend cannot load a model, from its headers."""
        from core_openvino.probe import refusal_of_files

        try:
            return refusal_of_files(path)
        except CoreError as error:
            return str(error)

    def deferral(self) -> str | None:
        """Return why models are left to mlx_cpu, unless this backend is named; None if not."""
        return availability.left_to_mlx()

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> OpenVinoModel:
        """Load a safetensors directory or a GGUF file; raises as `core.Backend.load_model` says."""
        self.check_available()
        self.check_options(config)
        chosen = self.place(config)
        from core_openvino.library import load_library

        load_library()
        from core_openvino.loaded import load
        from core_openvino.loading import open_model
        from core_openvino.model import OpenVinoModel

        return open_model(
            self.name, path, lambda: load(self.name, path, config, chosen), OpenVinoModel
        )
