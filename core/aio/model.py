"""A loaded model whose operations are awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterable, Iterable, Sequence
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, Unpack, cast

from core import api
from core.aio.blocks import Blocks
from core.aio.streams import AsyncItems, AsyncTokens
from core.aio.threads import ThreadCalls, in_thread
from core.extensions import Asynchronous
from core.kit.support import unsupported_method
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    LoadOptions,
    RequestOptions,
    TemplateOptions,
    resolve_classify,
)
from core.protocols import TextModel
from core.token_ids import TokenIds
from core.types import (
    AttentionSnapshot,
    BatchResult,
    ClassifyResult,
    Conversation,
    GenerateMetrics,
    HiddenResult,
    MemoryReport,
    ModelInfo,
    Score,
    Token,
    TokenSequence,
)

_LAST: ContextVar[dict[object, GenerateMetrics]] = ContextVar("core.aio.metrics")


async def load_model(
    path: str | os.PathLike[str],
    config: LoadConfig | None = None,
    /,
    **options: Unpack[LoadOptions],
) -> AsyncModel:
    """Load a model, as `core.load_model` does, in a thread.

    A load cannot be stopped: if the task is cancelled meanwhile, the model is closed after it.
    """
    given_up = False

    def work() -> TextModel:
        model = api.load_model(path, config, **options)
        if given_up:
            model.close()
        return model

    def stop() -> None:
        nonlocal given_up
        given_up = True

    return of(await in_thread(work, stop))


def of(model: TextModel) -> AsyncModel:
    """Return the same model for asyncio. Both may be used concurrently; closing one closes both."""
    return AsyncModel(model)


class AsyncModel:
    """A `core.TextModel` for asyncio; methods that the model lacks raise an error.

    Streams raise for invalid options at the call, everything else when awaited. Several calls of
    one event loop run concurrently, as far as the model allows, and so do calls of several loops.
    """

    def __init__(self, model: TextModel) -> None:
        self.model = model
        self._calls = model if isinstance(model, Asynchronous) else ThreadCalls(model)
        self._key = object()

    def __repr__(self) -> str:
        return f"<AsyncModel of {self.model!r}>"

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        return self.model.info

    @property
    def model_type(self) -> str:
        """The architecture's name."""
        return self.model.model_type

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of the last call that this task finished; all zero before the first."""
        return _LAST.get({}).get(self._key, GenerateMetrics())

    # ------------------------------------------------------------------ streams

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> AsyncTokens:
        """Continue a prompt, token by token. See `core.TextModel.generate`."""
        return self._tokens("generate", prompt, config, **options)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> AsyncTokens:
        """Answer a conversation. See `core.TextModel.chat`."""
        return self._tokens("chat", messages, config, **options)

    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> AsyncTokens:
        """Run ``generate`` on ids. See `core.TokenPrompts`."""
        return self._tokens("stream_tokens", prompt, config, **options)

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> AsyncTokens:
        """Run ``generate``, beginning at the call. See `core.Submitting`."""
        return self._tokens("submit", prompt, config)

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> AsyncItems[tuple[int, Token]]:
        """Return pairs of row index and token. See `core.BatchStreaming`."""
        self._needs("batch_stream")
        stream = self._calls.stream_async("batch_stream", prompts, config, **options)
        return AsyncItems(stream, self._record)

    def classify_iter(
        self,
        prompts: Iterable[str] | AsyncIterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> AsyncItems[ClassifyResult]:
        """Return one result per prompt, in order, in constant memory. See `core.ClassifyStreaming`.

        Prompts from an asynchronous iterable are classified block by block.
        """
        if isinstance(prompts, AsyncIterable):
            request = resolve_classify(config, options)
            self.model.classify([], request)  # checks that it is supported with these options
            return AsyncItems(Blocks(prompts, request, self._calls), self._record)
        self._needs("classify_iter")
        stream = self._calls.stream_async("classify_iter", prompts, config, **options)
        return AsyncItems(stream, self._record)

    # ------------------------------------------------------------------ calls

    async def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt. See `core.TextModel.classify`."""
        return cast(
            "list[ClassifyResult]", await self._call("classify", prompts, config, **options)
        )

    async def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts. See `core.TextModel.batch_generate`."""
        return cast(
            "list[BatchResult]", await self._call("batch_generate", prompts, config, **options)
        )

    async def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Return the log-probability of each continuation. See `core.Scoring`."""
        return cast(
            "list[Score]", await self._call("score", prompts, continuations, config, **options)
        )

    async def generate_tokens(
        self,
        prompts: TokenIds,
        config: GenerateConfig | None = None,
        /,
        *,
        attention_mask: TokenIds | None = None,
        num_samples: int = 1,
        **options: Unpack[GenerateOptions],
    ) -> list[TokenSequence]:
        """Run ``batch_generate`` on ids. See `core.TokenPrompts`."""
        own: dict[str, Any] = {"attention_mask": attention_mask, "num_samples": num_samples}
        return cast(
            "list[TokenSequence]",
            await self._call("generate_tokens", prompts, config, **own, **options),
        )

    async def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Run ``score`` on ids. See `core.TokenPrompts`."""
        found = await self._call("score_tokens", prompts, continuations, config, **options)
        return cast("list[Score]", found)

    async def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        """Return the hidden states at the last token of each prompt. See `core.HiddenStates`."""
        found = await self._call("hidden_states", prompts, config, layers=layers, **options)
        return cast("list[HiddenResult]", found)

    async def inspect_attention(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> AttentionSnapshot:
        """Return the keys that one prefill computes. See `core.AttentionInspector`."""
        found = await self._call("inspect_attention", prompt, config, **options)
        return cast("AttentionSnapshot", found)

    async def encode(self, text: str) -> list[int]:
        """Return the token ids of a text. See `core.Tokenizing`."""
        return cast("list[int]", await self._call("encode", text))

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids. See `core.Tokenizing`."""
        return cast("str", await self._call("decode", ids))

    async def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> str:
        """Return the prompt that ``chat`` would continue. See `core.Tokenizing`."""
        arguments = (messages,) if config is None else (messages, config)
        return cast("str", await self._call("render_chat", *arguments, **options))

    async def memory(self) -> MemoryReport:
        """Return the device memory held now. See `core.MemoryReporting`."""
        return cast("MemoryReport", await self._call("memory"))

    async def reset_peak_memory(self) -> None:
        """Reset the peak. See `core.MemoryReporting`."""
        await self._call("reset_peak_memory")

    async def aclose(self) -> None:
        """Close the model, in a thread that waits for running calls. Closing twice is fine."""
        await asyncio.shield(in_thread(self.model.close))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        await self.aclose()

    # ------------------------------------------------------------------ both ways

    async def _call(self, operation: str, *arguments: Any, **options: Any) -> object:
        self._needs(operation)
        result, metrics = await self._calls.call_async(operation, *arguments, **options)
        self._record(metrics)
        return result

    def _tokens(self, operation: str, *arguments: Any, **options: Any) -> AsyncTokens:
        self._needs(operation)
        stream = self._calls.stream_async(operation, *arguments, **options)
        return AsyncTokens(stream, self._record)

    def _needs(self, operation: str) -> None:
        """Raise `core.UnsupportedOperationError` for a method that the model lacks."""
        if getattr(self.model, operation, None) is None:
            raise unsupported_method(operation, self.model)

    def _record(self, metrics: GenerateMetrics) -> None:
        _LAST.set({**_LAST.get({}), self._key: metrics})
