"""The loaded model that users hold: checks, refusals and book-keeping around the engine."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Self, Unpack

import mlx.core as mx

from core.capability import Capability
from core.chat import RenderedPrompt
from core.clock import RequestClock
from core.errors import ModelClosedError
from core.options import (
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    resolve_classify,
    resolve_generate,
)
from core.protocols import TokenStream
from core.support import checked_prompts, refuse_options, unsupported
from core.types import (
    BatchResult,
    Choice,
    ClassifyResult,
    GenerateMetrics,
    MemoryReport,
    Message,
    ModelInfo,
)
from core_mlx_native.capabilities import MODEL_CAPABILITIES
from core_mlx_native.classify import Classifier
from core_mlx_native.loader import LoadedModel
from core_mlx_native.owner import OwnerThread


class MlxModel:
    """A model on one MLX device. See `core.TextModel` for what every method promises."""

    def __init__(self, backend: str, loaded: LoadedModel, owner: OwnerThread) -> None:
        self._backend, self._owner = backend, owner
        self._loaded: LoadedModel | None = loaded
        self._tokenizer, self._choices = loaded.tokenizer, loaded.choices
        self._info, self._model_type = loaded.info, loaded.config.model_type
        self._local = threading.local()
        self._finalizer = weakref.finalize(self, owner.stop)  # when nobody calls close()

    @property
    def model_type(self) -> str:
        """``model_type`` of config.json."""
        return self._model_type

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self._info

    @property
    def metrics(self) -> GenerateMetrics:
        """Of the last call that the calling thread finished."""
        return getattr(self._local, "metrics", GenerateMetrics())

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        Labels are scored by joint log-probability. One token costs nothing extra; every further
        token of a label costs a pass over the labels' inner trie nodes.
        """
        loaded = self._open()
        request = resolve_classify(config, options)
        refuse_options(request, Capability.CLASSIFY, self._backend, MODEL_CAPABILITIES)
        rows = checked_prompts("classify", prompts)
        clock = RequestClock(request)
        classifier = Classifier(
            loaded.decoder,
            loaded.tokenizer,
            self._info.context_length,
            loaded.token_budget,
            self._owner.run,
        )
        results, tokens = classifier.classify(rows, request, clock)
        self._record(tokens, sum(result.error is None for result in results), clock.seconds)
        return results

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Not offered yet: raises `UnsupportedOperationError`."""
        self._open()
        resolve_generate(config, options)
        raise unsupported(Capability.GENERATE, self._backend)

    def chat(
        self,
        messages: Sequence[Message],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Not offered yet: raises `UnsupportedOperationError`."""
        self._open()
        resolve_generate(config, options, "chat")
        raise unsupported(Capability.CHAT, self._backend)

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Not offered yet: raises `UnsupportedOperationError`."""
        self._open()
        resolve_generate(config, options, "batch_generate")
        raise unsupported(Capability.BATCH_GENERATE, self._backend)

    def encode(self, text: str) -> list[int]:
        """Token ids as the model reads this prompt, a leading BOS included."""
        self._open()
        return self._tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, special tokens left out."""
        self._open()
        return self._tokenizer.decode(ids)

    def render_chat(self, messages: Sequence[Message]) -> RenderedPrompt:
        """The prompt for a conversation; its special tokens are the template's alone."""
        self._open()
        return self._tokenizer.render_chat(messages)

    def choices(self) -> Sequence[Choice]:
        """What was chosen at load, and why."""
        return self._choices

    def memory(self) -> MemoryReport:
        """Device memory of this process's MLX, all models together."""
        self._open()
        return self._owner.run(
            lambda: MemoryReport(
                mx.get_active_memory(), mx.get_peak_memory(), mx.get_cache_memory()
            )
        )

    def reset_peak_memory(self) -> None:
        """Start the peak anew."""
        self._open()
        self._owner.run(mx.reset_peak_memory)

    def close(self) -> None:
        """Free the weights now. Closing twice is fine."""
        self._finalizer.detach()
        self._owner.close(self._free)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.close()

    def _open(self) -> LoadedModel:
        loaded = self._loaded
        if loaded is None:
            raise ModelClosedError
        return loaded

    def _free(self) -> None:
        if self._loaded is not None:
            self._loaded.decoder.clear()  # a call still holding the model must not hold weights
        self._loaded = None
        mx.clear_cache()

    def _record(self, prompt_tokens: int, rows: int, seconds: float) -> None:
        self._local.metrics = GenerateMetrics(
            prompt_tokens=prompt_tokens,
            generated_tokens=rows,
            prefill_seconds=seconds,
            total_seconds=seconds,
            peak_memory_bytes=mx.get_peak_memory(),
            active_memory_bytes=mx.get_active_memory(),
        )
