"""Optional protocols, one feature each. ``isinstance(model, Scoring)`` checks for one.

Each has its name in `Capability`; the capabilities that a backend declares must agree with
``isinstance`` on its models. They have methods only, so that the check never runs a property.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, Unpack, runtime_checkable

from core.options import (
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
    all_options_named,
)
from core.protocols import Capability, TextModel, TokenStream
from core.token_ids import TokenIds
from core.training import Examples, TrainConfig, TrainingRun
from core.types import (
    AttentionSnapshot,
    Choice,
    ClassifyResult,
    Conversation,
    Device,
    DiscoveredModel,
    FinishReason,
    GenerateMetrics,
    HiddenResult,
    MemoryReport,
    Score,
    Token,
    TokenSequence,
)

Item = TypeVar("Item", covariant=True)


@all_options_named
@runtime_checkable
class Tokenizing(Protocol):
    """A model that exposes its tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids that the model reads for this prompt, including a leading BOS.

        Only an encoder has tokens after the text as well.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of these ids without special tokens; an encoder may have changed it."""
        ...

    def render_chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        **options: Unpack[TemplateOptions],
    ) -> str:
        """Return the prompt that ``chat`` would continue (a `RenderedPrompt`)."""
        ...


@runtime_checkable
class Submitting(Protocol):
    """A model that accepts new requests while others run."""

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> TokenStream:
        """Queue a request from any thread; the stream buffers its tokens.

        Work begins at the call and continues whether or not the stream is read. Raises at the call
        what ``generate`` raises there; later errors are raised from the stream.
        """
        ...


@all_options_named
@runtime_checkable
class BatchStreaming(Protocol):
    """A model that streams the tokens of a batch."""

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[tuple[int, Token]]:
        """Return pairs of row index and token, in the order of generation.

        Options are checked at the call: TypeError for an unknown keyword, `OptionError` for a
        value. Work begins at the first ``next()``. A row that fails yields no more pairs, and the
        others continue; when all rows have ended, the error of the failed row with the lowest
        index is raised.
        """
        ...


@all_options_named
@runtime_checkable
class ClassifyStreaming(Protocol):
    """A model that classifies a stream of prompts in constant memory."""

    def classify_iter(
        self,
        prompts: Iterable[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> Iterator[ClassifyResult]:
        """Return one result per prompt, in input order.

        Options are checked at the call: TypeError for an unknown keyword, `OptionError` for a
        value. A failure of one prompt is its result's ``error``, and the others continue.
        """
        ...


@all_options_named
@runtime_checkable
class Scoring(Protocol):
    """A model that scores given continuations."""

    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Return the log-probability of each ``continuations[i]`` after ``prompts[i]``.

        A failure of one pair is its score's ``error``; so are `GenerationCancelled` and
        `GenerationTimeout`. Raises TypeError for an unknown keyword, `OptionError` for a value.
        """
        ...


@all_options_named
@runtime_checkable
class TokenPrompts(Protocol):
    """A model that takes prompts as token ids, for code with its own tokenisation.

    The ids are used unchanged: no BOS is added, and the ids of special tokens are special tokens.
    So the ids from `Tokenizing.encode` give the same result as the text.
    """

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

        ``attention_mask`` has 0 or False for padding and 1 or True for a prompt's tokens. Each
        prompt gets ``num_samples`` sequences, decoded concurrently after one prefill. With a seed
        the first of them equals the output of ``generate`` with that seed, and the others differ
        but are repeatable; greedy ones are equal. A failure of one prompt is the ``error`` of its
        sequences. Raises TypeError for prompts that are not lists of ids, `OptionError` for an
        invalid id, and for a mask of another shape or with a hole.
        """
        ...

    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Run ``generate`` on ids. Raises like ``generate_tokens``."""
        ...

    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Return the log-probability of the ids ``continuations[i]`` after the ids ``prompts[i]``.

        Like ``score``, but the caller sets the token boundaries: to score a text from its start,
        pass the model's BOS, or another token, as the prompt.
        """
        ...


@all_options_named
@runtime_checkable
class HiddenStates(Protocol):
    """A model that exposes its hidden states, as features for a classifier."""

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

        ``layers`` are numbers: 0 is the embeddings, n the output of the n-th layer, and
        ``info.num_layers``, or -1, the last layer's output after the final norm, which is the
        input of the LM head; negative numbers count back from there. Every model has -1; of a
        model with `Capability.LABEL_SENTENCES` it is the embedding of the entire text. Raises
        `UnsupportedOptionError` at the call for a layer that the backend does not expose,
        `OptionError` for a layer that does not exist.

        Two runs of one prompt, alone or in a batch, may differ by ``info.logit_tolerance`` times
        the state's length as a vector, and by at most a quarter of that length.

        A failure of one prompt is its result's ``error``; so are `GenerationCancelled` and
        `GenerationTimeout`. Raises TypeError for an unknown keyword.
        """
        ...


@all_options_named
@runtime_checkable
class AttentionInspector(Protocol):
    """A model that exposes its attention keys."""

    def inspect_attention(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> AttentionSnapshot:
        """Return the keys that one prefill of this prompt computes.

        Raises `RequestError` for a prompt that cannot run or that ``cancel`` or ``timeout``
        stopped; TypeError for an unknown keyword, `OptionError` for a value.
        """
        ...


@runtime_checkable
class MemoryReporting(Protocol):
    """A model that reports its device memory."""

    def memory(self) -> MemoryReport:
        """Return the device memory held now, and the peak since the last reset."""
        ...

    def reset_peak_memory(self) -> None:
        """Reset the peak to the memory that is in use now."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A model that reports automatically chosen settings, with the reasons."""

    def choices(self) -> Sequence[Choice]:
        """Return the chosen settings, each with its reason: at least the device.

        Others are for example the dtype, the BLAS and the batch size.
        """
        ...


@runtime_checkable
class Adapting(Protocol):
    """A model that runs several adapters over one copy of the weights in memory."""

    def with_adapter(self, path: str | os.PathLike[str] | None, /) -> TextModel:
        """Return the same model with another adapter, or without one if ``path`` is None.

        The returned model is independent of this one: either may be closed first, both may be used
        at once, and they share no caches. Raises the errors of a load with ``adapter_path``, which
        leave this model unchanged.
        """
        ...


@runtime_checkable
class Declaring(Protocol):
    """A model that declares its own capabilities, if the models of its backend differ in them.

    For example, a server's model supports what that server supports. The backend's
    ``capabilities`` are all that any of its models supports; `core.kit.support.offered` combines
    both. Every model with `Capability.LABEL_SENTENCES` declares itself, so that a caller without
    its backend can tell (`core.kit.support.compares_sentences`).
    """

    def declared(self) -> frozenset[Capability]:
        """Return the model's capabilities, including load options and protocols of the backend.

        They are constant from load to close, and agree with ``isinstance`` on the model.
        """
        ...


class AsyncStream(Protocol[Item]):
    """Items of a request, for ``async for``: tokens, pairs or results.

    ``finish_reason`` is None until the stream has ended, and always for a stream of pairs or
    results; ``metrics`` are final once it has ended.
    """

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended."""
        ...

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of the request."""
        ...

    def __aiter__(self) -> AsyncIterator[Item]: ...

    async def __anext__(self) -> Item: ...

    async def aclose(self) -> None:
        """Stop the request; may be called at any time and more than once."""
        ...


@runtime_checkable
class Asynchronous(Protocol):
    """A model that waits in the event loop: `core.aio` uses no thread for its calls.

    ``operation`` is the name of a method of the model, followed by its arguments; invalid ones
    raise as they do there. Cancelling a task that waits stops its request.
    """

    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of that method, for example ``classify``, and its cost."""
        ...

    def stream_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> AsyncStream[Any]:
        """Return the stream of ``generate``, ``chat``, ``submit``, ``stream_tokens``,
        ``batch_stream`` or ``classify_iter``. Invalid options raise here; work begins later."""
        ...


@runtime_checkable
class Trainable(Protocol):
    """A model whose adapter can be trained in place.

    Options and examples are checked at the call: `OptionError` for a value, TypeError for another
    config, `TrainingError` for an invalid example, and for examples that nothing can be learned
    from. Between two steps, after the last one and after an early close, the model answers with
    the adapter's current weights.
    """

    def train(self, examples: Examples, config: TrainConfig | None = None, /) -> TrainingRun:
        """Train a LoRA adapter; reading a step's report runs that step.

        Training continues an existing adapter if it has the requested shape; a model without one
        gets a new adapter with B = 0, which changes nothing before the first step. Raises
        `TrainingError` at a step whose loss is NaN or infinite; the adapter is then the last one
        with a finite loss.
        """
        ...

    def save_adapter(self, directory: str | os.PathLike[str], /) -> None:
        """Write the adapter to a directory that ``LoadConfig.adapter_path`` accepts.

        Raises `TrainingError` if the model has none, OSError if it cannot be written.
        """
        ...


@runtime_checkable
class ModelProbe(Protocol):
    """A backend that can check cheaply whether it supports a model."""

    def refusal(self, path: str | os.PathLike[str], /) -> str | None:
        """Return why it would not load a model, by config.json or GGUF header, or None."""
        ...


@runtime_checkable
class Deferring(Protocol):
    """A backend that leaves models to others on machines where it is slower.

    It needs no capability. By default it is tried last; a load that names it uses it.
    """

    def deferral(self) -> str | None:
        """Return why models are left to others here; None if they are not."""
        ...


@runtime_checkable
class ModelFinding(Protocol):
    """A backend that recognises models in a format that `core` does not know.

    With it, `core.discover` lists them, and `core.load_model` selects the backend for them.
    """

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return the description of a model at this path, or None if it is not this backend's.

        ``path`` is absolute, or an address (``scheme://...``), and may be anything: a file or a
        directory of another program, unreadable, or deleted. Read only the headers of a model.
        Discovery calls this for each directory and each file that it visits, so check the name
        first. Must not raise.

        The result has this ``path``, one of the backend's ``formats``, and a ``problem`` if the
        files are damaged. `core` fills in ``source``, ``names``, and ``modified`` if it is 0. A
        directory that is a model is one model: the files in it are not visited.
        """
        ...


@runtime_checkable
class DeviceReporting(Protocol):
    """A backend that lists its devices."""

    def devices(self) -> Sequence[Device]:
        """Return the devices, best first; empty only if the backend cannot run. Does not raise."""
        ...
