"""The model class of this plugin: the engine of `core_runtime.sequences` on a llama.cpp session."""

from __future__ import annotations

from core_llama_cpp.capabilities import MODEL_CAPABILITIES
from core_llama_cpp.loaded import LoadedModel
from core_runtime.owner import OwnerThread
from core_runtime.sequences.model import SequenceModel


class LlamaModel(SequenceModel):
    """A model in llama.cpp. See `core.TextModel` for the contract of every method."""

    _loaded: LoadedModel
    last_layer_only = (
        "llama.cpp only returns the last layer: use the default, layers=(-1,), or load the model "
        "as safetensors with an MLX backend (`infer-cli convert` converts it)."
    )

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        super().__init__(backend, loaded, owner, MODEL_CAPABILITIES)
