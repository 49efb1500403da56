"""Parts common to all calls on a loaded model: checked options, its tokenizer, its metrics."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Unpack

from core.kit.base import TextModelBase, never_stop
from core.kit.chat import RenderedPrompt
from core.kit.support import checked_text, refuse_options
from core.options import (
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
    resolve_classify,
    resolve_generate,
    resolve_request,
    resolve_template,
)
from core.protocols import Capability
from core.types import Choice, Conversation, GenerateMetrics, ModelInfo
from core_runtime.served import ServedModel
from core_runtime.text.tokenising import Tokenising

_METHODS = {
    Capability.SCORING: "score",
    Capability.TOKEN_PROMPTS: "score_tokens",
    Capability.HIDDEN_STATES: "hidden_states",
    Capability.ATTENTION_INSPECTOR: "inspect_attention",
}


class InProcessModel(TextModelBase):
    """A loaded model: its facts, its tokenizer, and the start and end of all its operations.

    ``capabilities``: what the backend declares. ``honours``: options of
    `core.kit.support.REFUSABLE` that it supports, such as ``"top_k"``; the others raise an error.
    ``equal_rows``: duplicate rows of a call are computed once.
    """

    honours: Collection[str] = ()
    equal_rows: bool = True

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
        """Return the settings chosen at load, with the reasons."""
        return self._served.choices

    def encode(self, text: str) -> list[int]:
        """Return the token ids that the model reads for this prompt, including a leading BOS.

        Raises TypeError for anything but a string, `core.RequestError` for lone surrogates.
        """
        self.check_open()
        return Tokenising(self._served.tokenizer, never_stop).encode(checked_text("encode", text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens."""
        self.check_open()
        return self._served.tokenizer.decode(ids)

    def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> RenderedPrompt:
        """Return the prompt for a conversation; only its template writes special tokens.

        Raises `core.ChatTemplateError`, also beyond 5 s of CPU time or 512 MB.
        """
        self.check_open()
        request = resolve_template(config, options)
        self._refuse_options(request, Capability.TOKENIZING)
        return self._served.tokenizer.render_chat(messages, self.check_open, request)

    def checked_generate(
        self,
        operation: Capability,
        config: GenerateConfig | None,
        options: GenerateOptions,
        method: str = "",
    ) -> GenerateConfig:
        """Return the options of a call that generates.

        ``method``: its name, if it differs from the operation's. Raises
        `core.ModelClosedError`, TypeError, `core.OptionError`.
        """
        self.check_open()
        request = resolve_generate(config, options, method or operation.value)
        self._refuse_options(request, operation)
        return request

    def checked_classify(
        self, operation: Capability, config: GenerateConfig | None, options: ClassifyOptions
    ) -> GenerateConfig:
        """Return the options of a call that classifies; raises like `checked_generate`."""
        self.check_open()
        request = resolve_classify(config, options)
        self._refuse_options(request, operation)
        return request

    def checked_request(
        self, operation: Capability, config: GenerateConfig | None, options: RequestOptions
    ) -> GenerateConfig:
        """Return the options of a call without output, such as ``score``; raises likewise."""
        self.check_open()
        request = resolve_request(config, options, _METHODS[operation])
        reading = Capability.SCORING if operation is Capability.TOKEN_PROMPTS else operation
        self._refuse_options(request, reading)
        return request

    def _refuse_options(self, request: GenerateConfig, operation: Capability) -> None:
        refuse_options(
            request,
            operation,
            self._backend,
            self._capabilities,
            honours=self.honours,
        )

    def record_with_memory(self, metrics: GenerateMetrics) -> None:
        """Record the metrics of a call that this thread has finished, with the memory in use."""
        memory = self._served.memory()
        peak, active = memory.peak, memory.active
        self.record(replace(metrics, peak_memory_bytes=peak, active_memory_bytes=active))

    def record_reading(
        self, prompt_tokens: int, cached: int, generated: int, seconds: float
    ) -> None:
        """Record the metrics of a call without a stream; ``cached`` prompt tokens were reused."""
        self.record_with_memory(
            GenerateMetrics(
                prompt_tokens=prompt_tokens,
                cached_prompt_tokens=cached,
                generated_tokens=generated,
                prefill_seconds=seconds,
                total_seconds=seconds,
            )
        )
