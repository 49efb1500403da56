"""The backend ``encoder``. Importing this module does not import OpenVINO."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from core.errors import CoreError
from core.options import LoadConfig
from core_openvino.backend import OnCpu
from core_openvino.encoder.capabilities import EMBEDDING

if TYPE_CHECKING:
    from core_openvino.encoder.model import CrossEncoderModel

_OWN_OPTIONS = {
    "device": "CPU; GPU and NPU have not been run, and are refused",
    "dtype": "data type of the computation: auto, float32, bfloat16 or int8",
    "n_batch": "tokens of one pass; a request can be cancelled between two",
    "n_threads": "threads of one pass",
    "truncate": "read the beginning of a text that is too long; its row fails without it",
}


class Encoder(OnCpu):
    """Encoders on the CPU. See `core.Backend`."""

    name = "encoder"
    capabilities = EMBEDDING
    formats = frozenset({"safetensors"})
    own_options = _OWN_OPTIONS

    def refusal(self, path: str | os.PathLike[str]) -> str | None:
        """Return the reason why this backend cannot load a model, from its headers."""
        from core_openvino.encoder.probe import refusal_of_files

        try:
            return refusal_of_files(path)
        except CoreError as error:
            return str(error)

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> CrossEncoderModel:
        """Load a directory; raises as `core.Backend.load_model` says."""
        self.check_available()
        self.check_options(config)
        chosen = self.place(config)
        from core_openvino.library import load_library

        load_library()
        from core_openvino.encoder.loaded import load
        from core_openvino.encoder.model import encoder_model
        from core_openvino.loading import open_model

        return open_model(self.name, path, lambda: load(path, config, chosen), encoder_model)
