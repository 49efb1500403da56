"""The half of a loaded model that generates, over the one engine that serves every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Unpack

from core import validate
from core.errors import GenerationCancelled, GenerationTimeout
from core.kit.base import Check, RequestClock
from core.kit.support import checked_prompts
from core.options import (
    ChatOptions,
    GenerateConfig,
    GenerateOptions,
)
from core.protocols import Capability
from core.token_ids import TokenIds, token_prompt, token_prompts
from core.types import BatchResult, Conversation, GenerateMetrics, Token, TokenSequence
from core_runtime.engine import Engine
from core_runtime.generation import GenerateCall, Prompt, checked
from core_runtime.model import InProcessModel
from core_runtime.request import Request, Sink
from core_runtime.rows import checked_ids, ids_error
from core_runtime.served import ServedModel
from core_runtime.stream import RequestStream


class GeneratingModel(InProcessModel):
    """A loaded model that generates: streams, batches, and generation from token ids.

    ``capabilities``: what the backend declares.
    """

    def __init__(
        self,
        backend: str,
        served: ServedModel,
        engine: Engine,
        capabilities: frozenset[Capability],
    ) -> None:
        super().__init__(backend, served, capabilities)
        self._engine = engine

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> RequestStream:
        """Continue a prompt, token by token. See `core.TextModel.generate`."""
        request = self.checked_generate(Capability.GENERATE, config, options)
        return self._stream(checked_prompts("generate", [prompt])[0], request)

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> RequestStream:
        """Start `generate` now, even if the stream is not read."""
        request = self.checked_generate(Capability.SUBMITTING, config, {})
        return self._stream(checked_prompts("submit", [prompt])[0], request).start()

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> RequestStream:
        """Answer a conversation, in the model's own chat format or its family's.

        The template runs at the call, which raises `ChatTemplateError` if it fails; a cancel or a
        timeout during the template is raised from the stream, as later. The timeout covers both,
        without the time between the call and the first ``next()``.
        """
        request = self.checked_generate(Capability.CHAT, config, options)
        clock = RequestClock(request)

        def check() -> None:
            self.check_open()
            clock.check()

        try:
            prompt = self._served.tokenizer.render_chat(messages, check, request)
        except (GenerationCancelled, GenerationTimeout) as error:
            return self._stopped(error)
        return self._stream(prompt, request, clock.seconds)

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts, as many at once as there are slots; results in order."""
        request = self.checked_generate(Capability.BATCH_GENERATE, config, options)
        rows = checked_prompts("batch_generate", prompts)
        with self._counted(partial(checked, self._served, rows), request) as generation:
            return generation.results()

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[tuple[int, Token]]:
        """Yield row index and token as they are drawn; raise the first failed row's error last.

        Work starts at the first ``next()``; closing the iterator stops every row.
        """
        request = self.checked_generate(Capability.BATCH_STREAMING, config, options)
        return self._streamed(checked_prompts("batch_stream", prompts), request)

    def generate_tokens(
        self,
        prompts: TokenIds,
        config: GenerateConfig | None = None,
        /,
        *,
        attention_mask: TokenIds | None = None,
        num_samples: int = 1,
        **options: Unpack[GenerateOptions],
    ) -> list[TokenSequence]:
        """Continue prompts of token ids; see `core.TokenPrompts`."""
        request = self.checked_generate(
            Capability.TOKEN_PROMPTS, config, options, "generate_tokens"
        )
        samples = validate.integer("num_samples", num_samples, 1)
        prompts_ids = token_prompts(prompts, attention_mask)
        rows = [Prompt(ids, ids_error(self._served, ids), samples) for ids in prompts_ids]

        with self._counted(lambda check: rows, request) as generation:
            results = generation.results()

        return [
            TokenSequence.of(rows[index // samples].ids, result)
            for index, result in enumerate(results)
        ]

    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> RequestStream:
        """Continue one prompt of token ids, token by token; see `core.TokenPrompts`."""
        request = self.checked_generate(Capability.TOKEN_PROMPTS, config, options, "stream_tokens")
        ids = token_prompt(prompt)

        def ids_of(check: Check) -> list[int]:
            error = ids_error(self._served, ids)
            if error is not None:
                raise error
            return ids

        return self._stream_of(ids_of, request)

    def _stream(self, prompt: str, config: GenerateConfig, spent: float = 0.0) -> RequestStream:
        return self._stream_of(partial(checked_ids, self._served, prompt), config, spent)

    def _stream_of(
        self, ids_of: Callable[[Check], list[int]], config: GenerateConfig, spent: float = 0.0
    ) -> RequestStream:
        def make(sink: Sink) -> Request:
            self.check_open()
            clock = RequestClock(config, spent)
            return Request(self._served, ids_of(clock.check), config, sink, clock)

        return RequestStream(make, self._engine, self.record)

    def _stopped(self, error: GenerationCancelled | GenerationTimeout) -> RequestStream:
        """Return the stream of a request that was stopped before it could be made."""

        def make(sink: Sink) -> Request:
            raise error.with_traceback(None)

        return RequestStream(make, self._engine, self.record)

    def _streamed(self, rows: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        self.check_open()
        with self._counted(partial(checked, self._served, rows), config) as generation:
            yield from generation.tokens()
        failed = (generation.ends[row].error for row in range(generation.rows))
        error = next((error for error in failed if error is not None), None)
        if error is not None:
            raise error

    @contextmanager
    def _counted(
        self, rows: Callable[[Check], Sequence[Prompt]], config: GenerateConfig
    ) -> Iterator[GenerateCall]:
        """Make a call over many rows, and record its metrics when it has ended."""
        engine, clock = self._engine, RequestClock(config)
        before = engine.watch.read()
        generation = GenerateCall(
            self._served, engine, rows(clock.check), config, clock, self.equal_rows
        )

        try:
            yield generation
        finally:
            after = engine.watch.read()
            self.record_with_memory(
                GenerateMetrics(
                    prompt_tokens=generation.prompt_tokens,
                    cached_prompt_tokens=generation.cached_prompt_tokens,
                    generated_tokens=generation.generated_tokens,
                    prefill_seconds=after.prefill - before.prefill,
                    decode_seconds=after.decode - before.decode,
                    total_seconds=clock.seconds,
                )
            )
