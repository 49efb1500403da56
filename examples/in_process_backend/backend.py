"""The backend ``toy``. See `core.Backend` for what every method promises."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from core.errors import UnsupportedOptionError
from core.kit.support import refuse_load_options
from core.options import LoadConfig
from core.protocols import Capability
from core_runtime.capabilities import CLASSIFYING

if TYPE_CHECKING:
    from .model import ToyModel


class Toy:
    """Loads a directory whose config.json has the model type ``toy``."""

    name = "toy"
    protocol = 2
    formats = frozenset({"safetensors"})
    capabilities: frozenset[Capability] = CLASSIFYING

    def available(self) -> bool:
        """Everywhere."""
        return True

    def unavailable_reason(self) -> str | None:
        """None."""
        return None

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> ToyModel:
        """Raises `ModelError` for the files, `OptionError` for what cannot be honoured."""
        refuse_load_options(config, self.name, self.capabilities)
        if config.gpu_layers > 0:
            advice = "It computes on the CPU: leave it at -1 or 0."
            raise UnsupportedOptionError("gpu_layers", self.name, advice)
        from .loader import load  # what an engine imports is heavy: not before it is wanted
        from .model import ToyModel

        return ToyModel(self.name, load(self.name, path, config))
