"""The loaded model of the public API."""

from __future__ import annotations

from core_openvino.capabilities import MODEL_CAPABILITIES
from core_openvino.loaded import LoadedModel
from core_runtime.owner import OwnerThread
from core_runtime.sequences.model import SequenceModel


class OpenVinoModel(SequenceModel):
    """A model in OpenVINO. See `core.TextModel` for the contract of every method."""

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        super().__init__(backend, loaded, owner, MODEL_CAPABILITIES)
