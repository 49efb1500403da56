"""The loaded model of the public API: checks and bookkeeping around engine and passes."""

from __future__ import annotations

import weakref
from functools import partial

from core.errors import ModelClosedError, UnsupportedOptionError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.types import HiddenResult, Score
from core_llama_cpp.capabilities import MODEL_CAPABILITIES
from core_llama_cpp.classify.hidden import HiddenQuestion
from core_llama_cpp.classify.labels import ClassifyQuestion
from core_llama_cpp.classify.passes import Passes
from core_llama_cpp.classify.questions import RowQuestions
from core_llama_cpp.classify.scoring import ScoreQuestion
from core_llama_cpp.context.prefixes import Pool
from core_llama_cpp.decode.engine import LlamaEngine
from core_llama_cpp.loaded import LoadedModel
from core_llama_cpp.sampling import HONOURED
from core_runtime.classifying import Classifier
from core_runtime.equal_rows import RowComputation
from core_runtime.owner import OwnerThread
from core_runtime.reading import ReadingModel
from core_runtime.rows import PromptRow, ScoreRow

_ONE_LAYER = (
    "llama.cpp only returns the last layer: use the default, layers=(-1,), or load the model as "
    "safetensors with an MLX backend (`infer-cli convert` converts it)."
)


class LlamaModel(ReadingModel):
    """A model in llama.cpp. See `core.TextModel` for the contract of every method."""

    honours = HONOURED

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        session = loaded.session
        self._loaded, self._owner = loaded, owner
        pool = Pool(session.cells, session.settings.n_seq_max)
        engine = LlamaEngine(loaded, self._owner, pool)
        super().__init__(backend, loaded, engine, MODEL_CAPABILITIES)
        self._shutdown = engine.shutdown
        self._passes = Passes(session, pool, engine, self._owner, loaded.prefixes)
        # For a model that is not closed: this must not hold a reference to the model.
        self._finalizer = weakref.finalize(self, _abandon, self._owner, loaded)

    @property
    def model_type(self) -> str:
        """``general.architecture`` of the GGUF header."""
        return self._loaded.info.architecture

    def check_open(self) -> None:
        """Raise `ModelClosedError` after ``close()``, and in a fork, for every operation alike."""
        super().check_open()
        self._owner.check_fork()

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Classifier:
        """See `ClassifyingModel`."""
        text = self._loaded.tokenizer.token_text
        question_of = partial(ClassifyQuestion, config=request, token_text=text)
        return RowQuestions(self._passes, clock, question_of)

    def scorer(self, clock: RequestClock) -> RowComputation[ScoreRow, Score]:
        """See `ReadingModel`."""
        return RowQuestions(self._passes, clock, ScoreQuestion)

    def state_reader(
        self, layers: tuple[int, ...], clock: RequestClock
    ) -> RowComputation[PromptRow, HiddenResult]:
        """See `ReadingModel`; llama.cpp returns the last layer only."""
        last = self.info.num_layers
        if layers != (last,):
            raise UnsupportedOptionError("layers", self._backend, _ONE_LAYER)
        return RowQuestions(self._passes, clock, partial(HiddenQuestion, layer=last))

    def release(self) -> None:
        """Free weights and cache now, after queued work."""
        self._owner.close(self._free)
        self._finalizer.detach()  # last: an interrupt before it leaves the finalizer in place

    def _free(self) -> None:
        self._shutdown(ModelClosedError())
        self._loaded.prefixes.clear()
        free(self._loaded)


def free(loaded: LoadedModel) -> None:
    """Free everything loaded, on the owner thread. May be called twice."""
    loaded.tokenizer.close(loaded.session.close)


def _abandon(owner: OwnerThread, loaded: LoadedModel) -> None:
    owner.post(lambda: free(loaded))
    owner.stop()
