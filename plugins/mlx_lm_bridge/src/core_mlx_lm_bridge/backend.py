"""The backend ``mlx_lm``. Importing this module and checking availability starts no process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from core.errors import UnsupportedOptionError
from core.kit.base import BackendBase
from core.models.files import resolve_path
from core.options import LoadConfig
from core_mlx_lm_bridge import availability
from core_mlx_lm_bridge.capabilities import BACKEND_CAPABILITIES

if TYPE_CHECKING:
    from core_mlx_lm_bridge.model import BridgeModel

_OWN_OPTIONS = {
    "env": "environment variables of the worker",
    "prefill_step_size": "prompt tokens of one prefill step; cancel is polled between two steps",
    "python": "the worker's interpreter",
    "silence_timeout": "seconds without an answer after which a busy worker is killed",
}


class MlxLm(BackendBase):
    """mlx-lm in a subprocess, for every model that it can run. See `core.Backend`."""

    name = "mlx_lm"
    capabilities = BACKEND_CAPABILITIES
    formats = frozenset({"safetensors"})
    own_options = _OWN_OPTIONS

    def unavailable_reason(self) -> str | None:
        """Return the reason why no worker can run here, and what to install, or None."""
        return availability.unavailable_reason()

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Return the reason why mlx-lm cannot run a model, by its config.json and file names."""
        from core_mlx_lm_bridge.probing import refusal

        return refusal(path)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> BridgeModel:
        """Load a directory of safetensors. Raises as `core.Backend.load_model` says.

        `core.BackendProcessError` is raised if the worker dies, is silent, or breaks the protocol.
        """
        if "python" not in config.options:
            self.check_available()
        self.check_options(config)
        from core_mlx_lm_bridge.loading import open_model

        if config.gpu_layers > 0:
            raise UnsupportedOptionError(
                "gpu_layers",
                self.name,
                "mlx-lm keeps all layers on one device: use -1, or 0 for the CPU.",
            )
        return open_model(self.name, resolve_path(path), config)
