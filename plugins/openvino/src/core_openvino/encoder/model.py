"""The loaded model of the public API."""

from __future__ import annotations

from dataclasses import replace

from core.errors import UnsupportedOptionError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import ClassifyResult, HiddenResult
from core_openvino.encoder.capabilities import EMBEDDING, PAIRS
from core_openvino.encoder.loaded import LoadedEncoder
from core_openvino.encoder.scoring import EncodedRows, Passes, classified, embedded
from core_runtime.classifying import ClassifyingCalls
from core_runtime.owned import OwnedModel
from core_runtime.owner import OwnerThread
from core_runtime.reading import HiddenCalls


class CrossEncoderModel(OwnedModel, ClassifyingCalls):
    """A cross-encoder in OpenVINO. See `core.TextModel` for the contract of every method."""

    capabilities = PAIRS

    def __init__(self, backend: str, loaded: LoadedEncoder, owner: OwnerThread) -> None:
        self._loaded, self._owner = loaded, owner
        super().__init__(backend, loaded, self.capabilities)
        self.own(loaded)

    def declared(self) -> frozenset[Capability]:
        """Return the model's capabilities; see `core.Declaring`."""
        return self._capabilities

    def prompt_options(self, request: GenerateConfig) -> GenerateConfig:
        """Return the options without labels: no label is tokenised after a prompt."""
        return replace(request, labels=())

    def classifier(
        self, request: GenerateConfig, clock: RequestClock
    ) -> EncodedRows[ClassifyResult]:
        """See `ClassifyingCalls`."""
        return classified(Passes(self._loaded, self._owner, clock), request)

    def free(self) -> None:
        """See `OwnedModel`."""
        self._loaded.close()


class EncoderModel(HiddenCalls, CrossEncoderModel):
    """An encoder in OpenVINO, which also has an embedding for each text."""

    capabilities = EMBEDDING

    def state_reader(
        self, layers: tuple[int, ...], clock: RequestClock
    ) -> EncodedRows[HiddenResult]:
        """See `HiddenCalls`."""
        if layers != (self.info.num_layers,):
            raise UnsupportedOptionError(
                "layers",
                self._backend,
                "It returns the embedding of a text: use the default, layers=(-1,).",
            )
        return embedded(Passes(self._loaded, self._owner, clock), layers)


def encoder_model(backend: str, loaded: LoadedEncoder, owner: OwnerThread) -> CrossEncoderModel:
    """Return the model of a loaded encoder."""
    kind = EncoderModel if loaded.config.head is None else CrossEncoderModel
    return kind(backend, loaded, owner)
