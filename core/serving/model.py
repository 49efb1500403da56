"""What all calls on a loaded model share: options that are checked, its tokenizer, its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.base import TextModelBase
from core.capability import Capability
from core.chat import RenderedPrompt
from core.options import (
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    resolve_classify,
    resolve_generate,
)
from core.serving.served import ServedModel
from core.support import refuse_options
from core.types import Choice, GenerateMetrics, Message, ModelInfo


class InProcessModel(TextModelBase):
    """Facts about the model, its tokenizer, and what its operations begin and end with.

    ``capabilities``: what the backend declares.
    """

    def __init__(
        self, backend: str, served: ServedModel, capabilities: frozenset[Capability]
    ) -> None:
        super().__init__(backend)
        self._served, self._capabilities = served, capabilities

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self._served.info

    def choices(self) -> Sequence[Choice]:
        """What was chosen at load, and why."""
        return self._served.choices

    def encode(self, text: str) -> list[int]:
        """Token ids as the model reads this prompt, a leading BOS included."""
        self.check_open()
        return self._served.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, special tokens left out."""
        self.check_open()
        return self._served.tokenizer.decode(ids)

    def render_chat(self, messages: Sequence[Message]) -> RenderedPrompt:
        """The prompt for a conversation; its special tokens are the template's alone."""
        self.check_open()
        return self._served.tokenizer.render_chat(messages)

    def checked_generate(
        self, operation: Capability, config: GenerateConfig | None, options: GenerateOptions
    ) -> GenerateConfig:
        """The options of a call that generates.

        Raises `core.ModelClosedError`, TypeError, `core.OptionError`.
        """
        self.check_open()
        request = resolve_generate(config, options, operation.value)
        refuse_options(request, operation, self._backend, self._capabilities)
        return request

    def checked_classify(
        self, operation: Capability, config: GenerateConfig | None, options: ClassifyOptions
    ) -> GenerateConfig:
        """The options of a call that classifies; raises like `checked_generate`."""
        self.check_open()
        request = resolve_classify(config, options)
        refuse_options(request, operation, self._backend, self._capabilities)
        return request

    def record_with_memory(self, metrics: GenerateMetrics) -> None:
        """Keep the metrics of a call that this thread has finished, and what memory is held."""
        held = self._served.memory()
        self.record(replace(metrics, peak_memory_bytes=held.peak, active_memory_bytes=held.active))

    def record_reading(
        self, prompt_tokens: int, cached: int, generated: int, seconds: float
    ) -> None:
        """The same for a call that is nothing but prefill; ``cached`` of its tokens were reused."""
        self.record_with_memory(
            GenerateMetrics(
                prompt_tokens=prompt_tokens,
                cached_prompt_tokens=cached,
                generated_tokens=generated,
                prefill_seconds=seconds,
                total_seconds=seconds,
            )
        )
