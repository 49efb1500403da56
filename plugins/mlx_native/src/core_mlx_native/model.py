"""The loaded model that users hold: checks and book-keeping around the engine."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Unpack

import mlx.core as mx

from core.capability import Capability
from core.clock import RequestClock
from core.errors import ModelClosedError
from core.options import ClassifyOptions, GenerateConfig
from core.serving.generating import GeneratingModel
from core.serving.owner import OwnerThread
from core.serving.prompts import checked_ids
from core.support import checked_pairs, checked_prompts, checked_stream
from core.types import AttentionSnapshot, ClassifyResult, MemoryReport, Score
from core_mlx_native import memory
from core_mlx_native.capabilities import MODEL_CAPABILITIES
from core_mlx_native.classifying import Classification
from core_mlx_native.engine import Engine
from core_mlx_native.failures import of_request
from core_mlx_native.inspection import inspect
from core_mlx_native.loader import LoadedModel
from core_mlx_native.scoring import score_all


class MlxModel(GeneratingModel):
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

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        Labels are scored by joint log-probability. One token costs nothing extra; every further
        token of a label costs a pass over the labels' inner trie nodes. What prompts begin with
        alike is computed once.
        """
        request = self.checked_classify(Capability.CLASSIFY, config, options)
        with self._classification(request) as classification:
            return classification.classify(checked_prompts("classify", prompts))

    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        """`classify` for a stream of prompts, in memory that does not grow with it.

        Prompts are taken in blocks of 64 to 1,024, from the thread that iterates.
        """
        request = self.checked_classify(Capability.CLASSIFY_STREAMING, config, options)
        return self._classified(checked_stream("classify_iter", prompts), request)

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
        mx.clear_cache()

    def _classified(
        self, prompts: Iterable[object], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        self.check_open()
        with self._classification(request) as classification:
            yield from classification.classify_iter(prompts)

    @contextmanager
    def _classification(self, request: GenerateConfig) -> Iterator[Classification]:
        """A call, and its metrics when it has ended."""
        clock = RequestClock(request)
        call = Classification(self._loaded, self._owner, request, clock)
        try:
            yield call
        finally:
            reused = min(call.classifier.reused, call.prompt_tokens)
            self.record_reading(call.prompt_tokens, reused, call.read, clock.seconds)
