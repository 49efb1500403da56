"""The backends ``metal``, ``mlx_cuda`` and ``mlx_cpu``: one class, three devices.

Importing this module and asking about availability costs no import of MLX.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import BackendUnavailableError, CoreError, UnsupportedOptionError
from core.models.files import model_formats, resolve_path
from core.options import LoadConfig
from core.protocols import PROTOCOL_VERSION, Capability
from core.support import chosen_backend, refuse_load_options
from core.types import Choice, Device
from core_mlx_native import availability
from core_mlx_native.capabilities import BACKEND_CAPABILITIES
from core_mlx_native.cpu.blas import ensure_blas

if TYPE_CHECKING:
    from core_mlx_native.model import MlxModel

_OWN_OPTIONS = {
    "chat_template": "the name of the chat template to use, where a model has several",
    "dequantize": "whether packed weights are made dense at the load",
    "dtype": "float32, float16 or bfloat16: what is computed in",
    "length_step": "rows of classify and score are padded to a multiple of so many tokens",
    "prefill_chunk": "tokens of a prompt that run between two decode steps",
    "prefix_cache": "bytes kept for prompts that begin like recent ones; 0 keeps none",
    "token_budget": "tokens that classify, score, or one prefill, runs together",
    "without": "fast paths to switch off, for comparison",
}


class MlxBackend(ABC):
    """The part that the three backends share. See `core.Backend`."""

    name: str
    protocol = PROTOCOL_VERSION
    formats = frozenset({"safetensors"})
    own_options = _OWN_OPTIONS
    on_gpu = True

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities of this backend and its models."""
        return BACKEND_CAPABILITIES

    def available(self) -> bool:
        """True if MLX can compute on this backend's device here."""
        return self.unavailable_reason() is None

    @abstractmethod
    def unavailable_reason(self) -> str | None:
        """The reason why MLX cannot compute here, and what to do; None when it can."""

    @abstractmethod
    def _device(self) -> Device:
        """The device that models run on. Call this only where the backend is available."""

    def devices(self) -> Sequence[Device]:
        """The one device that models run on; empty when there is none."""
        return (self._device(),) if self.available() else ()

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """The reason why this plugin cannot load a model; else None.

        It looks at config.json, and whether there are weights and a tokenizer.json.
        """
        from core_mlx_native.checkpoint.config import load_config
        from core_mlx_native.checkpoint.own_files import without_weights
        from core_mlx_native.text.missing import missing_tokenizer

        try:
            directory = _directory(path)
            load_config(directory, tensors=False)
            if reason := without_weights(directory):
                return reason
        except CoreError as error:
            return str(error)
        return missing_tokenizer(directory)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> MlxModel:
        """Load a directory of safetensors. Raises as `core.Backend.load_model` says."""
        reason = self.unavailable_reason()
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)

        refuse_load_options(config, self.name, self.capabilities, _OWN_OPTIONS)
        self._refuse_gpu_layers(config.gpu_layers)

        blas = ensure_blas()  # before anything imports mlx.core
        from core_mlx_native.opening import open_model

        # The choices that are made here; the load adds its own.
        where = self._device()
        chosen = [
            chosen_backend(self.name, config),
            Choice("device", where.name, "what this backend computes on"),
        ]
        if not self.on_gpu:
            chosen.append(Choice("blas", blas.name, blas.reason))

        return open_model(self.name, _directory(path), config, self.on_gpu, chosen)

    def _refuse_gpu_layers(self, layers: int) -> None:
        if layers != -1:
            raise UnsupportedOptionError(
                "gpu_layers",
                self.name,
                "MLX keeps all layers on one device: leave it at -1"
                + (", or compute on the CPU with backend 'mlx_cpu'." if self.on_gpu else " or 0."),
            )


def _directory(path: str | os.PathLike[str]) -> Path:
    """Return the model's directory. Raises `ModelError` for what is not a model at all."""
    model_formats(path)
    return Path(resolve_path(path))


class Metal(MlxBackend):
    """MLX on the GPU of an Apple chip. Not run by this project's tests."""

    name = "metal"

    def unavailable_reason(self) -> str | None:
        """The reason why Metal cannot be used; None on an Apple-silicon Mac with MLX."""
        return availability.metal_reason(availability.gather_facts())

    def _device(self) -> Device:
        return availability.metal_device()


class Cuda(MlxBackend):
    """MLX on an NVIDIA GPU."""

    name = "mlx_cuda"

    def unavailable_reason(self) -> str | None:
        """The reason why CUDA cannot be used; None with MLX's CUDA build and a device."""
        return availability.cuda_reason(availability.gather_facts())

    def _device(self) -> Device:
        return availability.cuda_device()


class Cpu(MlxBackend):
    """MLX on the CPU, with a real BLAS put in front of it on Linux."""

    name = "mlx_cpu"
    on_gpu = False

    def unavailable_reason(self) -> str | None:
        """The reason why MLX cannot run on this CPU; None where a build of it is installed."""
        return availability.cpu_reason(availability.gather_facts())

    def _device(self) -> Device:
        return availability.cpu_device()

    def _refuse_gpu_layers(self, layers: int) -> None:
        if layers > 0:
            super()._refuse_gpu_layers(layers)
