"""The contract: what a backend can declare, and what it and every loaded model offer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from enum import StrEnum
from types import TracebackType
from typing import Protocol, Self, Unpack, runtime_checkable

from core.option_docs import all_options_named
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
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
"""The version of this contract. A backend states, as a number, the one that it was written for.

Backends of version 1 still run: `core.older` refuses, by name, the options that came after it.
"""
OLDEST_VERSION = 1
"""The oldest version whose backends still run."""


class Capability(StrEnum):
    """One name per thing that a backend may or may not offer.

    An undeclared capability is refused with a typed error, never half-answered.
    """

    GENERATE = "generate"
    CHAT = "chat"
    CLASSIFY = "classify"
    BATCH_GENERATE = "batch_generate"
    # options
    LABELS = "labels"
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
    """What ``generate`` and ``chat`` return: tokens, as they come, or ``text()`` as a whole.

    Work starts at the first ``next()``. Errors are raised from the iterator at a token boundary.
    `core.TokenStreamBase` has what backends would otherwise write alike.
    """

    def text(self) -> str:
        """Read the stream to its end, and return all of its text.

        That of tokens which were read before is included, and a second call returns it again. Of
        a stream that was closed, it is the text of what was read. Raises what the iterator raises,
        at a second call too: the text of a stream that failed is in ``to_dict()``.
        """
        ...

    def to_dict(self) -> dict[str, object]:
        """What came of the stream until now, for JSON; it reads nothing.

        ``text`` of the tokens that were read, ``finish_reason``, ``metrics``, and the ``error``
        that was raised, as its ``type`` and ``message``.
        """
        ...

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the stream ended; None until it has."""
        ...

    @property
    def metrics(self) -> GenerateMetrics:
        """What this stream cost; final once it has ended."""
        ...

    def close(self) -> None:
        """Stop cleanly; may be called at any time and more than once."""
        ...


@all_options_named
class TextModel(Protocol):
    """A loaded model. Usable from any thread, and from several at once.

    Wrong options raise at the call. What goes wrong with one prompt of a batch is that row's
    ``error``. Every method raises `ModelClosedError` after ``close()``, and
    `UnsupportedOperationError` or `UnsupportedOptionError` for what its backend does not declare.

    The token that ends a generation, the model's end of sequence or one of ``stop_tokens``, is
    neither emitted nor counted as one of ``max_tokens``.

    Two runs of one prompt, alone or in a batch, may differ in their logits by
    ``info.logit_tolerance``. So greedy tokens are the same as long as the two best logits are
    further apart than that, and most draws of one seed are the same.
    """

    @property
    def model_type(self) -> str:
        """The architecture's name as in config.json or the GGUF header."""
        ...

    @property
    def info(self) -> ModelInfo:
        """Facts about the model. Its ``logit_tolerance`` is small against the logits' spread."""
        ...

    @property
    def metrics(self) -> GenerateMetrics:
        """What the last call cost that the calling thread finished."""
        ...

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Continue a prompt, token by token. The same seed gives the same tokens.

        Special tokens that a plain prompt spells are plain text, here as in every operation; in a
        `RenderedPrompt` they are special tokens.
        """
        ...

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        """Answer a conversation, through the model's own chat template.

        Raises TypeError or `OptionError`, with its index, for a message that is none.
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

        It is the one that ``generate`` samples its first token from: with a seed, each prompt's
        token is the one that ``generate`` draws first with that seed.
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

        Each row is what ``generate`` makes of its prompt, with a seed as well.
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
    """One way to run models. Cheap to import and to ask; heavy work starts in ``load_model``."""

    @property
    def name(self) -> str:
        """The name users choose it by."""
        ...

    @property
    def protocol(self) -> int:
        """The `PROTOCOL_VERSION` that it was written for, as a number of its own: 2."""
        ...

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the backend offers; everything else it refuses.

        It is the most that any of its models offers, where these differ (`core.Declaring`).
        """
        ...

    @property
    def formats(self) -> frozenset[str]:
        """The model formats it reads: ``safetensors``, ``gguf``, ``http`` for a server's model.

        Names are open: a format of its own has a name of its own. Such a model loads where the
        backend is named, and is found and chosen by default with `core.ModelFinding`.
        """
        ...

    def available(self) -> bool:
        """Whether the backend can run on this machine. Does not raise."""
        ...

    def unavailable_reason(self) -> str | None:
        """Why it cannot run here, and what to do about it; None when it is available."""
        ...

    def load_model(self, path: str | os.PathLike[str], config: LoadConfig) -> TextModel:
        """Load a model. Raises `ModelError`, `OptionError`, or `BackendUnavailableError`."""
        ...
