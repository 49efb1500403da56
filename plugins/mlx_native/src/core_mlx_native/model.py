"""The loaded model that users hold: checks and book-keeping around the engine."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import mlx.core as mx

from core.clock import RequestClock
from core.errors import ModelClosedError
from core.options import GenerateConfig
from core.serving.classifying import ClassifyingModel
from core.serving.owner import OwnerThread
from core.serving.prompts import checked_ids
from core.support import checked_pairs, checked_prompts
from core.types import AttentionSnapshot, MemoryReport, Score
from core_mlx_native import memory
from core_mlx_native.capabilities import MODEL_CAPABILITIES
from core_mlx_native.classify import Classifier
from core_mlx_native.engine import Engine
from core_mlx_native.failures import of_request
from core_mlx_native.inspection import inspect
from core_mlx_native.loader import LoadedModel
from core_mlx_native.scoring import score_all


class MlxModel(ClassifyingModel):
    """A model on one MLX device. See `core.TextModel` for what every method promises."""

    _engine: Engine

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        super().__init__(backend, loaded, Engine(loaded, owner), MODEL_CAPABILITIES)
        self._loaded, self._owner = loaded, owner
        self._finalizer = weakref.finalize(self, owner.stop)  # when nobody calls close()

    @property
    def model_type(self) -> str:
        """``model_type`` of config.json."""
        return self._loaded.config.model_type

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Classifier:
        """See `ClassifyingModel`."""
        return Classifier(self._loaded, self._owner, request, clock)

    def score(self, prompts: Sequence[str], continuations: Sequence[str], /) -> list[Score]:
        """How likely ``continuations[i]`` is after ``prompts[i]``; errors per row."""
        self.check_open()
        heads, tails = checked_pairs("score", prompts, continuations)
        clock = RequestClock(GenerateConfig())
        scores, tokens = score_all(self._loaded, self._owner, heads, tails)
        self.record_reading(tokens, 0, 0, clock.seconds)
        return scores

    def inspect_attention(self, prompt: str, /) -> AttentionSnapshot:
        """The keys that one prefill of this prompt computes, in float32.

        Raises `RequestError` for a prompt that cannot run.
        """
        self.check_open()
        ids = checked_ids(self._loaded, *checked_prompts("inspect_attention", [prompt]))
        try:
            return self._owner.run(lambda: inspect(self._loaded, ids))
        except (MemoryError, RuntimeError) as error:
            raise of_request(error, len(ids)) from error

    def memory(self) -> MemoryReport:
        """Device memory of this process's MLX, all models together."""
        self.check_open()
        return self._owner.run(
            lambda: MemoryReport(
                memory.get_active_memory(), memory.get_peak_memory(), memory.get_cache_memory()
            )
        )

    def reset_peak_memory(self) -> None:
        """Start the peak anew."""
        self.check_open()
        self._owner.run(mx.reset_peak_memory)

    def release(self) -> None:
        """Free the weights now, behind what is queued."""
        self._finalizer.detach()
        self._owner.close(self._free)

    def _free(self) -> None:
        self._engine.shutdown(ModelClosedError())
        self._loaded.decoder.clear()  # whoever still holds the model does not hold its weights
        memory.clear_cache()
