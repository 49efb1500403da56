"""The contract: capabilities, and the interfaces of backends and of loaded models."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self, Unpack, runtime_checkable

from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    all_options_named,
)
from core.types import (
    BatchResult,
    ClassifyResult,
    Conversation,
    FinishReason,
    GenerateMetrics,
    ModelInfo,
    Token,
)

PROTOCOL_VERSION = 2
"""The version of this contract. A backend declares the version that it was written for."""


class Capability(StrEnum):
    """Name of an optional feature of a backend.

    Using an undeclared capability raises a typed error; it is never partly supported.
    """

    GENERATE = "generate"
    CHAT = "chat"
    CLASSIFY = "classify"
    BATCH_GENERATE = "batch_generate"
    # options
    LABELS = "labels"
    LABEL_SENTENCES = "label_sentences"
    LOGITS = "logits"
    LOGPROBS = "logprobs"
    SEED = "seed"
    PARALLEL = "parallel"
    ROTATE = "rotate"
    ADAPTERS = "adapters"
    CHAT_TEMPLATE = "chat_template"
    # optional protocols, one each (core/extensions.py)
    TOKENIZING = "tokenizing"
    SUBMITTING = "submitting"
    BATCH_STREAMING = "batch_streaming"
    CLASSIFY_STREAMING = "classify_streaming"
    SCORING = "scoring"
    TOKEN_PROMPTS = "token_prompts"
    HIDDEN_STATES = "hidden_states"
    ATTENTION_INSPECTOR = "attention_inspector"
    MODEL_PROBE = "model_probe"
    MODEL_FINDING = "model_finding"
    MEMORY_REPORTING = "memory_reporting"
    ADAPTING = "adapting"
    TRAINABLE = "trainable"
    DEVICE_REPORTING = "device_reporting"
    EXPLAINING = "explaining"
    DECLARING = "declaring"
    ASYNCHRONOUS = "asynchronous"


class TokenStream(Iterator[Token], Protocol):
    """Token stream that ``generate`` and ``chat`` return: iterate it, or call ``text()``.

    Work starts at the first ``next()``. Errors are raised from the iterator at a token boundary.
    `core.TokenStreamBase` implements the parts common to all backends.
    """

    def text(self) -> str:
        """Read the stream to its end, and return all of its text.

        The text includes tokens that were read before, and a second call returns it again. For a
        closed stream it is the text that was read. Raises the iterator's error, at a second call
        too; the text of a failed stream is in ``to_dict()``.
        """
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the state of the stream for JSON, without reading further.

        The keys are ``text`` (of the tokens read so far), ``finish_reason``, ``metrics``, and
        ``error``, with the ``type`` and ``message`` of the raised error.
        """
        ...

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""
        ...

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; final once it has ended."""
        ...

    def close(self) -> None:
        """Stop the request; may be called at any time and more than once."""
        ...


@all_options_named
class TextModel(Protocol):
    """A loaded model. Usable from any thread, and from several at once.

    Invalid options raise at the call. A failure of one prompt of a batch is that row's ``error``.
    Every method raises `ModelClosedError` after ``close()``, and `UnsupportedOperationError` or
    `UnsupportedOptionError` for a capability that its backend does not declare.

    The token that ends a generation, the model's end of sequence or one of ``stop_tokens``, is
    neither emitted nor counted towards ``max_tokens``.

    The logits of two runs of one prompt, alone or in a batch, may differ by
    ``info.logit_tolerance``. So greedy tokens are the same as long as the two best logits are
    further apart than that, and most draws with one seed are the same.
    """

    @property
    def model_type(self) -> str:
        """The architecture's name as in config.json or the GGUF header."""
        ...

    @property
    def info(self) -> ModelInfo:
        """Facts about the model. ``logit_tolerance`` is small compared with the logits' spread."""
        ...

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of the last call that the calling thread finished."""
        ...

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Continue a prompt, token by token. The same seed gives the same tokens.

        Special tokens spelled out in a plain prompt are read as plain text, as in every operation;
        in a `RenderedPrompt` they are special tokens.
        """
        ...

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        """Answer a conversation, formatted with the model's own chat template.

        Raises TypeError or `OptionError`, with its index, for an invalid message.
        """
        ...

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Read the next-token distribution of each prompt; one result per prompt, in order.

        ``generate`` samples its first token from the same distribution: with a seed, each prompt's
        token is the first one that ``generate`` draws with that seed.

        A model with `Capability.LABEL_SENTENCES`, such as an encoder, has no next token. It scores
        each label's sentence with the text, and its scores are not log-probabilities: ``token``,
        ``logprobs`` and ``label_mass`` are None, and ``probabilities`` are the softmax of the
        scores. It declares LABELS and not CLASSIFY, and refuses a call without labels.
        """
        ...

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Continue many prompts; one result per prompt, in order.

        Each row equals the output of ``generate`` for its prompt, with the same seed too.
        """
        ...

    def close(self) -> None:
        """Free the model's memory. Closing twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class Backend(Protocol):
    """An engine that runs models. Import and queries are cheap; ``load_model`` does the work."""

    @property
    def name(self) -> str:
        """The name by which users select the backend."""
        ...

    @property
    def protocol(self) -> int:
        """The `PROTOCOL_VERSION` that it was written for, as a literal number: 2."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Capabilities that the backend supports; it rejects all others.

        If its models differ (`core.Declaring`), these are all that any of them supports.
        """
        ...

    @property
    def formats(self) -> frozenset[str]:
        """The model formats it reads: ``safetensors``, ``gguf``, ``http`` for a server's model.

        A backend may add names for its own formats. Such a model loads if the backend is named;
        with `core.ModelFinding` it is also listed and loaded by default.
        """
        ...

    def available(self) -> bool:
        """Return whether the backend can run on this machine. Does not raise."""
        ...

    def unavailable_reason(self) -> str | None:
        """Return why it cannot run here and what to do about it; None if it is available."""
        ...

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> TextModel:
        """Load a model. Raises `ModelError`, `OptionError`, or `BackendUnavailableError`."""
        ...
