"""The backends ``metal``, ``mlx_cuda`` and ``mlx_cpu``: one class, three devices.

Importing this module and checking availability does not import MLX.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import CoreError, UnsupportedOptionError
from core.kit.base import BackendBase
from core.kit.support import chosen_backend
from core.models.files import model_formats, resolve_path
from core.options import LoadConfig
from core.types import Choice, Device
from core_mlx_native import availability
from core_mlx_native.capabilities import BACKEND_CAPABILITIES
from core_mlx_native.cpu.blas import ensure_blas

if TYPE_CHECKING:
    from core_mlx_native.model import MlxModel

_OWN_OPTIONS = {
    "chat_template": "name of the chat template, if the model has several",
    "dequantize": "convert quantised weights to dense ones at load",
    "dtype": "data type of the computation: float32, float16 or bfloat16",
    "length_step": "pad rows of classify and score to a multiple of this many tokens",
    "prefill_chunk": "prompt tokens processed between two decode steps",
    "prefix_cache": "bytes for cached prefixes of recent prompts; 0 disables the cache",
    "token_budget": "tokens per forward pass of classify, score and prefill",
    "without": "fast paths to disable, for comparison",
}


class MlxBackend(BackendBase):
    """The common base of the three backends. See `core.Backend`."""

    capabilities = BACKEND_CAPABILITIES
    formats = frozenset({"safetensors"})
    own_options = _OWN_OPTIONS
    on_gpu = True

    @abstractmethod
    def _device(self) -> Device:
        """Return the device that models run on. Call this only if the backend is available."""

    def devices(self) -> Sequence[Device]:
        """Return the one device that models run on; empty if the backend is unavailable."""
        return (self._device(),) if self.available() else ()

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Return the reason why this plugin cannot load a model; None if it can.

        Checks config.json, and that weights and tokenizer.json exist.
        """
        from core_runtime.checkpoint.config import load_config
        from core_runtime.checkpoint.own_files import without_weights
        from core_runtime.tokenizer.missing import missing_tokenizer

        try:
            directory = _directory(path)
            load_config(directory, tensors=False)
            if reason := without_weights(directory):
                return reason
        except CoreError as error:
            return str(error)
        return missing_tokenizer(directory)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> MlxModel:
        """Load a safetensors directory. Raises like `core.Backend.load_model`."""
        self.check_available()
        self.check_options(config)
        self._refuse_gpu_layers(config.gpu_layers)

        blas = ensure_blas()  # before anything imports mlx.core
        from core_mlx_native.loading import open_model

        # The settings chosen here; the load adds more.
        where = self._device()
        chosen = [
            chosen_backend(self.name, config),
            Choice("device", where.name, "the device of this backend"),
        ]
        if not self.on_gpu:
            chosen.append(Choice("blas", blas.name, blas.reason))

        return open_model(self.name, _directory(path), config, self.on_gpu, chosen)

    def _refuse_gpu_layers(self, layers: int) -> None:
        if layers != -1:
            raise UnsupportedOptionError(
                "gpu_layers",
                self.name,
                "MLX keeps all layers on one device: leave gpu_layers at -1"
                + (", or use backend 'mlx_cpu' to run on the CPU." if self.on_gpu else " or 0."),
            )


def _directory(path: str | os.PathLike[str]) -> Path:
    """Return the model's directory. Raises `ModelError` if the path is not a model."""
    model_formats(path)
    return Path(resolve_path(path))


class Metal(MlxBackend):
    """MLX on the GPU of an Apple chip. Not run by this project's tests."""

    name = "metal"

    def unavailable_reason(self) -> str | None:
        """Return the reason why Metal cannot be used; None on an Apple silicon Mac with MLX."""
        return availability.metal_reason(availability.gather_facts())

    def _device(self) -> Device:
        return availability.metal_device()


class Cuda(MlxBackend):
    """MLX on an NVIDIA GPU."""

    name = "mlx_cuda"

    def unavailable_reason(self) -> str | None:
        """Return the reason why CUDA cannot be used; None with MLX's CUDA build and a device."""
        return availability.cuda_reason(availability.gather_facts())

    def _device(self) -> Device:
        return availability.cuda_device()


class Cpu(MlxBackend):
    """MLX on the CPU, with a fast BLAS on Linux."""

    name = "mlx_cpu"
    on_gpu = False

    def unavailable_reason(self) -> str | None:
        """Return the reason why MLX cannot run on this CPU; None if a build of it is installed."""
        return availability.cpu_reason(availability.gather_facts())

    def _device(self) -> Device:
        return availability.cpu_device()

    def _refuse_gpu_layers(self, layers: int) -> None:
        if layers > 0:
            super()._refuse_gpu_layers(layers)
