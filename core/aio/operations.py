"""The operations of a model with their signatures, for asyncio.

Generated from core/protocols.py and core/extensions.py by tools/signatures.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Any, Unpack

from core.aio.streams import AsyncItems, AsyncTokens
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
    all_options_named,
)
from core.token_ids import TokenIds
from core.types import (
    AttentionSnapshot,
    BatchResult,
    ClassifyResult,
    Conversation,
    HiddenResult,
    MemoryReport,
    Score,
    Token,
    TokenSequence,
)


@all_options_named
class AsyncOperations:
    """The methods of `core.aio.AsyncModel`, all of which call one of these three."""

    async def _call(self, operation: str, /, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def _tokens(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncTokens:
        raise NotImplementedError

    def _items(self, operation: str, /, *arguments: Any, **options: Any) -> AsyncItems[Any]:
        raise NotImplementedError

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> AsyncTokens:
        """Continue a prompt, token by token. The same seed gives the same tokens.

        See `core.TextModel.generate`.
        """
        return self._tokens("generate", prompt, config, **options)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> AsyncTokens:
        """Answer a conversation, formatted with the model's own chat template.

        See `core.TextModel.chat`.
        """
        return self._tokens("chat", messages, config, **options)

    async def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        See `core.TextModel.classify`.
        """
        result: list[ClassifyResult] = await self._call("classify", prompts, config, **options)
        return result

    async def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts; one result per prompt, in order.

        See `core.TextModel.batch_generate`.
        """
        result: list[BatchResult] = await self._call("batch_generate", prompts, config, **options)
        return result

    async def encode(self, text: str) -> list[int]:
        """Return the token ids that the model reads for this prompt, including a leading BOS.

        See `core.Tokenizing.encode`.
        """
        result: list[int] = await self._call("encode", text)
        return result

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens; an encoder may have changed it.

        See `core.Tokenizing.decode`.
        """
        result: str = await self._call("decode", ids)
        return result

    async def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> str:
        """Return the prompt that ``chat`` would continue (a `RenderedPrompt`).

        See `core.Tokenizing.render_chat`.
        """
        result: str = await self._call("render_chat", messages, config, **options)
        return result

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> AsyncTokens:
        """Queue a request from any thread; the stream buffers its tokens.

        See `core.Submitting.submit`.
        """
        return self._tokens("submit", prompt, config)

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> AsyncItems[tuple[int, Token]]:
        """Return pairs of row index and token, in the order of generation.

        See `core.BatchStreaming.batch_stream`.
        """
        return self._items("batch_stream", prompts, config, **options)

    def classify_iter(
        self,
        prompts: Iterable[str] | AsyncIterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> AsyncItems[ClassifyResult]:
        """Return one result per prompt, in input order.

        See `core.ClassifyStreaming.classify_iter`.
        """
        return self._items("classify_iter", prompts, config, **options)

    async def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Return the log-probability of each ``continuations[i]`` after ``prompts[i]``.

        See `core.Scoring.score`.
        """
        result: list[Score] = await self._call("score", prompts, continuations, config, **options)
        return result

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
        """Run ``batch_generate`` on ids: one prompt or many, ragged, or padded on the left.

        See `core.TokenPrompts.generate_tokens`.
        """
        result: list[TokenSequence] = await self._call(
            "generate_tokens",
            prompts,
            config,
            attention_mask=attention_mask,
            num_samples=num_samples,
            **options,
        )
        return result

    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> AsyncTokens:
        """Run ``generate`` on ids. Raises like ``generate_tokens``.

        See `core.TokenPrompts.stream_tokens`.
        """
        return self._tokens("stream_tokens", prompt, config, **options)

    async def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Return the log-probability of the ids ``continuations[i]`` after the ids ``prompts[i]``.

        See `core.TokenPrompts.score_tokens`.
        """
        result: list[Score] = await self._call(
            "score_tokens", prompts, continuations, config, **options
        )
        return result

    async def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        """Return the hidden states at the last token of each prompt, one result each, in order.

        See `core.HiddenStates.hidden_states`.
        """
        result: list[HiddenResult] = await self._call(
            "hidden_states", prompts, config, layers=layers, **options
        )
        return result

    async def inspect_attention(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> AttentionSnapshot:
        """Return the keys that one prefill of this prompt computes.

        See `core.AttentionInspector.inspect_attention`.
        """
        result: AttentionSnapshot = await self._call("inspect_attention", prompt, config, **options)
        return result

    async def memory(self) -> MemoryReport:
        """Return the device memory held now, and the peak since the last reset.

        See `core.MemoryReporting.memory`.
        """
        result: MemoryReport = await self._call("memory")
        return result

    async def reset_peak_memory(self) -> None:
        """Reset the peak to the memory that is in use now.

        See `core.MemoryReporting.reset_peak_memory`.
        """
        await self._call("reset_peak_memory")
