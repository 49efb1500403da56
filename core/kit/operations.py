"""The operations of a model with their signatures: one class for each protocol.

Each method combines config and keywords into one `GenerateConfig`, and calls the method that a
subclass implements: ``classify(prompts, ...)`` calls ``do_classify(prompts, request)``.

Generated from core/protocols.py and core/extensions.py by tools/signatures.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Unpack

from core.errors import CoreError
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
)
from core.protocols import Capability, TokenStream
from core.token_ids import TokenIds
from core.types import (
    AttentionSnapshot,
    BatchResult,
    ClassifyResult,
    Conversation,
    HiddenResult,
    Score,
    Token,
    TokenSequence,
)

OPERATIONS: Mapping[str, tuple[Capability, type]] = {
    "generate": (Capability.GENERATE, GenerateOptions),
    "chat": (Capability.CHAT, ChatOptions),
    "classify": (Capability.CLASSIFY, ClassifyOptions),
    "batch_generate": (Capability.BATCH_GENERATE, GenerateOptions),
    "render_chat": (Capability.TOKENIZING, TemplateOptions),
    "submit": (Capability.SUBMITTING, GenerateOptions),
    "batch_stream": (Capability.BATCH_STREAMING, GenerateOptions),
    "classify_iter": (Capability.CLASSIFY_STREAMING, ClassifyOptions),
    "score": (Capability.SCORING, RequestOptions),
    "generate_tokens": (Capability.TOKEN_PROMPTS, GenerateOptions),
    "stream_tokens": (Capability.TOKEN_PROMPTS, GenerateOptions),
    "score_tokens": (Capability.TOKEN_PROMPTS, RequestOptions),
    "hidden_states": (Capability.HIDDEN_STATES, RequestOptions),
    "inspect_attention": (Capability.ATTENTION_INSPECTOR, RequestOptions),
}
"""The capability of each operation, and the type of its keywords."""


class Operations:
    """Base of the classes below."""

    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: object
    ) -> GenerateConfig:
        """Return the options of a call. Raises for invalid and for unsupported ones."""
        raise NotImplementedError

    def unsupported(self, capability: Capability) -> CoreError:
        """Return the error of an operation that a subclass does not implement."""
        raise NotImplementedError


class TextModelOperations(Operations):
    """The operations of `core.TextModel` that take options."""

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Continue a prompt, token by token. The same seed gives the same tokens.

        See `core.TextModel.generate`.
        """
        request = self.resolve_request("generate", config, options)
        return self.do_generate(prompt, request)

    def do_generate(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Run ``generate`` with these options."""
        raise self.unsupported(Capability.GENERATE)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        """Answer a conversation, formatted with the model's own chat template.

        See `core.TextModel.chat`.
        """
        request = self.resolve_request("chat", config, options)
        return self.do_chat(messages, request)

    def do_chat(self, messages: Conversation, request: GenerateConfig) -> TokenStream:
        """Run ``chat`` with these options."""
        raise self.unsupported(Capability.CHAT)

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        See `core.TextModel.classify`.
        """
        request = self.resolve_request("classify", config, options)
        return self.do_classify(prompts, request)

    def do_classify(self, prompts: Sequence[str], request: GenerateConfig) -> list[ClassifyResult]:
        """Run ``classify`` with these options."""
        raise self.unsupported(Capability.CLASSIFY)

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts; one result per prompt, in order.

        See `core.TextModel.batch_generate`.
        """
        request = self.resolve_request("batch_generate", config, options)
        return self.do_batch_generate(prompts, request)

    def do_batch_generate(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> list[BatchResult]:
        """Run ``batch_generate`` with these options."""
        raise self.unsupported(Capability.BATCH_GENERATE)


class TokenizingOperations(Operations):
    """The operations of `core.Tokenizing` that take options."""

    def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> str:
        """Return the prompt that ``chat`` would continue (a `RenderedPrompt`).

        See `core.Tokenizing.render_chat`.
        """
        request = self.resolve_request("render_chat", config, options)
        return self.do_render_chat(messages, request)

    def do_render_chat(self, messages: Conversation, request: GenerateConfig) -> str:
        """Run ``render_chat`` with these options."""
        raise self.unsupported(Capability.TOKENIZING)


class SubmittingOperations(Operations):
    """The operations of `core.Submitting` that take options."""

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> TokenStream:
        """Queue a request from any thread; the stream buffers its tokens.

        See `core.Submitting.submit`.
        """
        request = self.resolve_request("submit", config, {})
        return self.do_submit(prompt, request)

    def do_submit(self, prompt: str, request: GenerateConfig) -> TokenStream:
        """Run ``submit`` with these options."""
        raise self.unsupported(Capability.SUBMITTING)


class BatchStreamingOperations(Operations):
    """The operations of `core.BatchStreaming` that take options."""

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[tuple[int, Token]]:
        """Return pairs of row index and token, in the order of generation.

        See `core.BatchStreaming.batch_stream`.
        """
        request = self.resolve_request("batch_stream", config, options)
        return self.do_batch_stream(prompts, request)

    def do_batch_stream(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        """Run ``batch_stream`` with these options."""
        raise self.unsupported(Capability.BATCH_STREAMING)


class ClassifyStreamingOperations(Operations):
    """The operations of `core.ClassifyStreaming` that take options."""

    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        """Return one result per prompt, in input order.

        See `core.ClassifyStreaming.classify_iter`.
        """
        request = self.resolve_request("classify_iter", config, options)
        return self.do_classify_iter(prompts, request)

    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        """Run ``classify_iter`` with these options."""
        raise self.unsupported(Capability.CLASSIFY_STREAMING)


class ScoringOperations(Operations):
    """The operations of `core.Scoring` that take options."""

    def score(
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
        request = self.resolve_request("score", config, options)
        return self.do_score(prompts, continuations, request)

    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        """Run ``score`` with these options."""
        raise self.unsupported(Capability.SCORING)


class TokenPromptsOperations(Operations):
    """The operations of `core.TokenPrompts` that take options."""

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
        """Run ``batch_generate`` on ids: one prompt or many, ragged, or padded on the left.

        See `core.TokenPrompts.generate_tokens`.
        """
        request = self.resolve_request("generate_tokens", config, options)
        return self.do_generate_tokens(prompts, request, attention_mask, num_samples)

    def do_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> list[TokenSequence]:
        """Run ``generate_tokens`` with these options."""
        raise self.unsupported(Capability.TOKEN_PROMPTS)

    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Run ``generate`` on ids. Raises like ``generate_tokens``.

        See `core.TokenPrompts.stream_tokens`.
        """
        request = self.resolve_request("stream_tokens", config, options)
        return self.do_stream_tokens(prompt, request)

    def do_stream_tokens(self, prompt: Sequence[int], request: GenerateConfig) -> TokenStream:
        """Run ``stream_tokens`` with these options."""
        raise self.unsupported(Capability.TOKEN_PROMPTS)

    def score_tokens(
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
        request = self.resolve_request("score_tokens", config, options)
        return self.do_score_tokens(prompts, continuations, request)

    def do_score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, request: GenerateConfig
    ) -> list[Score]:
        """Run ``score_tokens`` with these options."""
        raise self.unsupported(Capability.TOKEN_PROMPTS)


class HiddenStatesOperations(Operations):
    """The operations of `core.HiddenStates` that take options."""

    def hidden_states(
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
        request = self.resolve_request("hidden_states", config, options)
        return self.do_hidden_states(prompts, request, layers)

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Run ``hidden_states`` with these options."""
        raise self.unsupported(Capability.HIDDEN_STATES)


class AttentionInspectorOperations(Operations):
    """The operations of `core.AttentionInspector` that take options."""

    def inspect_attention(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> AttentionSnapshot:
        """Return the keys that one prefill of this prompt computes.

        See `core.AttentionInspector.inspect_attention`.
        """
        request = self.resolve_request("inspect_attention", config, options)
        return self.do_inspect_attention(prompt, request)

    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        """Run ``inspect_attention`` with these options."""
        raise self.unsupported(Capability.ATTENTION_INSPECTOR)
