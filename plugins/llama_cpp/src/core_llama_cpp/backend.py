"""The backends ``llama_cpp`` and ``rocm``: one class, with the devices that each may use.

Importing this module imports no llama_cpp; checking availability opens its shared library.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from core.errors import BackendUnavailableError, CoreError, UnsupportedOptionError
from core.kit.base import BackendBase
from core.kit.support import chosen_backend
from core.options import LoadConfig
from core.types import Device
from core_llama_cpp import availability, ggml
from core_llama_cpp.capabilities import BACKEND_CAPABILITIES
from core_llama_cpp.ggml import GgmlDevice

if TYPE_CHECKING:
    from core_llama_cpp.model import LlamaModel

_OWN_OPTIONS = {
    "cache_cells": "size of the KV cache in tokens, for all sequences together",
    "flash_attn": "flash attention, true or false",
    "log_level": "lowest level of llama.cpp's log to show: off, error, warning, info or debug",
    "n_batch": "tokens of one call into llama.cpp",
    "n_threads": "threads, for prompts and for decoding",
    "n_ubatch": "tokens of one pass through the layers, at most n_batch",
    "prefix_cache": "size of the prefix cache in bytes; 0 turns it off",
}


class LlamaCpp(BackendBase):
    """llama.cpp on the devices that its build reports: the CPU, or GPUs. See `core.Backend`."""

    name = "llama_cpp"
    capabilities = BACKEND_CAPABILITIES
    formats = frozenset({"gguf"})
    own_options = _OWN_OPTIONS

    def unavailable_reason(self) -> str | None:
        """Return the reason why llama.cpp cannot run, and what to do.

        None if its library opens.
        """
        return availability.library_reason()

    def devices(self) -> Sequence[Device]:
        """Return the devices for models, GPUs first; empty if the backend cannot run."""
        return availability.reported(self._devices()) if self.available() else ()

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Return the reason why this plugin cannot load a model, from its GGUF header alone."""
        from core_llama_cpp.checkpoint.probe import refusal

        return refusal(path)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> LlamaModel:
        """Load a GGUF model. Raises as `core.Backend.load_model` says."""
        try:
            return self._load_model(path, config)
        except CoreError:
            raise
        except OSError as error:  # no descriptor, or no thread, for the load
            what = f"the system refused a resource that the load needs ({error})"
            raise BackendUnavailableError(
                self.name, f"{what}. Close other files, and try again"
            ) from error

    def _load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> LlamaModel:
        self.check_available()
        self.check_options(config)
        devices = self._devices()
        gpus = self._gpus(devices, config.gpu_layers)
        from core_llama_cpp.loading import open_model

        chosen = (
            chosen_backend(self.name, config),
            availability.chosen_device(devices, gpus),
            availability.chosen_blas(devices),
        )
        return open_model(self.name, path, config, gpus, chosen)

    def _devices(self) -> Sequence[GgmlDevice]:
        return ggml.devices()

    def _gpus(self, devices: Sequence[GgmlDevice], layers: int) -> Sequence[GgmlDevice]:
        """Return the GPUs that take layers.

        Raises if GPU layers are requested without a GPU.
        """
        gpus = [device for device in devices if device.is_gpu] if layers else []
        if layers > 0 and not gpus:
            raise UnsupportedOptionError(
                "gpu_layers",
                self.name,
                "This build of llama.cpp reports no GPU. Use -1 or 0, or build llama-cpp-python "
                "for your GPU (see docs/llama_cpp.md).",
            )
        return gpus


class Rocm(LlamaCpp):
    """llama.cpp on an AMD GPU, through ggml's HIP backend. Not run by this project's tests."""

    name = "rocm"

    def unavailable_reason(self) -> str | None:
        """Return the reason why no AMD GPU can be used; None if ggml reports a ROCm device."""
        return super().unavailable_reason() or availability.rocm_reason(ggml.devices())

    def _devices(self) -> Sequence[GgmlDevice]:
        """Return the devices of ggml's HIP backend, and all that are not GPUs."""
        devices = ggml.devices()
        others = [device for device in devices if not device.is_gpu]
        return (*availability.rocm_devices(devices), *others)
