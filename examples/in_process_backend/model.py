"""The loaded model that users hold. What it does is `core_runtime`'s; it brings the parts."""

from __future__ import annotations

import weakref

from core.errors import ModelClosedError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core_runtime.capabilities import CLASSIFYING
from core_runtime.classifying import ClassifyingModel
from core_runtime.owner import OwnerThread

from .classify import ToyClassifier
from .engine import ToyEngine
from .loader import MODEL_TYPE, Loaded
from .sampling import HONOURED


class ToyModel(ClassifyingModel):
    """A toy in plain Python. See `core.TextModel` for what every method promises."""

    model_type = MODEL_TYPE
    honours = HONOURED

    def __init__(self, backend: str, loaded: Loaded) -> None:
        self._loaded, self._owner = loaded, OwnerThread(backend)
        super().__init__(backend, loaded, ToyEngine(loaded, self._owner), CLASSIFYING)
        self._finalizer = weakref.finalize(self, self._owner.stop)  # if close() is never called

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> ToyClassifier:
        """See `ClassifyingModel`."""
        return ToyClassifier(self._loaded, self._owner, request, clock)

    def release(self) -> None:
        """Free the weights, after the queued jobs."""
        self._loaded.tokenizer.close()
        self._owner.close(self._free)
        self._finalizer.detach()

    def _free(self) -> None:
        self._engine.shutdown(ModelClosedError())
        self._loaded.language.free()
