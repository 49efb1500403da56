"""The loaded model of the public API: checks and bookkeeping around engine and passes."""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

from core.errors import ModelClosedError, UnsupportedOptionError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import HiddenResult, Score
from core_runtime.classifying import Classifier
from core_runtime.equal_rows import RowComputation
from core_runtime.owned import Closable, OwnedModel
from core_runtime.owner import OwnerThread
from core_runtime.reading import ReadingModel
from core_runtime.rows import PromptRow, ScoreRow
from core_runtime.sequences.engine import EngineModel, SequenceEngine
from core_runtime.sequences.hidden import HiddenQuestion
from core_runtime.sequences.labels import ClassifyQuestion
from core_runtime.sequences.passes import Passes
from core_runtime.sequences.pool import Pool
from core_runtime.sequences.questions import RowQuestions
from core_runtime.sequences.sampling import HONOURED
from core_runtime.sequences.scoring import ScoreQuestion


class LoadedSequences(EngineModel, Closable, Protocol):
    """A model in memory, with all that was opened for it."""


class SequenceModel(OwnedModel, ReadingModel):
    """A model on this engine. See `core.TextModel` for the contract of every method.

    ``last_layer_only``: the error for hidden states of other layers.
    """

    honours = HONOURED
    last_layer_only = "The engine only returns the last layer: use the default, layers=(-1,)."

    def __init__(
        self,
        backend: str,
        loaded: LoadedSequences,
        owner: OwnerThread,
        capabilities: frozenset[Capability],
    ) -> None:
        self._loaded, self._owner = loaded, owner
        pool = Pool(loaded.session.cells, loaded.session.n_seq_max)
        engine = SequenceEngine(loaded, owner, pool)
        super().__init__(backend, loaded, engine, capabilities)
        self._shutdown = engine.shutdown
        logger = logging.getLogger(type(self).__module__.partition(".")[0])
        self._passes = Passes(loaded, pool, engine, owner, logger)
        self.own(loaded)

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
        """See `ReadingModel`."""
        if not set(layers).issubset(self._loaded.session.hidden_layers):
            raise UnsupportedOptionError("layers", self._backend, self.last_layer_only)
        return RowQuestions(self._passes, clock, partial(HiddenQuestion, layers=layers))

    def free(self) -> None:
        """See `OwnedModel`."""
        self._shutdown(ModelClosedError())
        self._loaded.prefixes.clear()
        self._loaded.close()
