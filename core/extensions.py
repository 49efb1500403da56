"""Optional protocols, one idea each. ``isinstance(model, Scoring)`` asks for one.

Each has its name in `Capability`; what a backend declares and what ``isinstance`` answers on its
models must agree. They hold methods only, so that asking never runs a property.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar, Unpack, runtime_checkable

from core.option_docs import all_options_named
from core.options import (
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
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
    """A model that shows its tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Token ids as the model would read this prompt, a leading BOS included."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these ids, special tokens left out."""
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
    """A model that takes new requests while others run."""

    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> TokenStream:
        """Queue a request from any thread; its tokens wait in the stream.

        Work begins at the call and goes on, whether or not the stream is read. Raises at the call
        what ``generate`` raises there; what goes wrong later is raised from the stream.
        """
        ...


@all_options_named
@runtime_checkable
class BatchStreaming(Protocol):
    """A model that hands out a batch's tokens as they come."""

    def batch_stream(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[tuple[int, Token]]:
        """Pairs of row index and token, in the order they are made.

        Options are checked at the call: TypeError for an unknown keyword, `OptionError` for a
        value. Work begins at the first ``next()``. A row that fails gives no more pairs, and the
        others go on; when all rows have ended, the error of the first that failed, by its index,
        is raised.
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
        """One result per prompt, in input order.

        Options are checked at the call: TypeError for an unknown keyword, `OptionError` for a
        value. What is wrong with one prompt is its result's ``error``, and the others go on.
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
        """How likely ``continuations[i]`` is after ``prompts[i]``.

        What is wrong with one pair is its score's ``error``; so are `GenerationCancelled` and
        `GenerationTimeout`. Raises TypeError for an unknown keyword, `OptionError` for a value.
        """
        ...


@all_options_named
@runtime_checkable
class TokenPrompts(Protocol):
    """A model that takes prompts as token ids: for code that has its own way from text to ids.

    The ids are read as they are: no BOS is added, and special tokens are what they stand for. So
    the ids that `Tokenizing.encode` makes of a text come to what the text comes to.
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
        """``batch_generate`` of ids: one prompt or many, ragged, or padded on the left.

        ``attention_mask`` has 0 for padding and 1 for a prompt's tokens, False and True will do.
        Each prompt gets ``num_samples`` sequences, side by side, from one prefill of it. With a
        seed the first of them is what ``generate`` draws with that seed, and the others draw
        differently, each time alike; greedy ones are equal. What is wrong with one prompt is the
        ``error`` of its sequences. Raises TypeError for what is no list of ids, `OptionError` for
        what is no id, and for a mask of another shape or with a hole.
        """
        ...

    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """``generate`` of ids. Raises like ``generate_tokens``."""
        ...

    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """How likely the ids ``continuations[i]`` are after the ids ``prompts[i]``.

        As ``score``, with no question about which tokens a continuation has: a text from its
        beginning is scored behind the model's BOS, or another token of the caller's choice.
        """
        ...


@all_options_named
@runtime_checkable
class HiddenStates(Protocol):
    """A model that shows what it makes of a prompt: features for a classifier behind it."""

    def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        """The hidden states at the last token of each prompt; one result per prompt, in order.

        ``layers`` are numbers: 0 the embeddings, n what the n-th block puts out, and
        ``info.num_layers``, or -1, the last block's output behind the final norm, which the head
        reads; negative ones count from there. Every model has -1. `UnsupportedOptionError` at the
        call for a layer that the backend does not show, `OptionError` for one that is none.

        Two runs of one prompt, alone or in a batch, may differ by ``info.logit_tolerance`` times
        the state's length as a vector, and by a quarter of it at most.

        What is wrong with one prompt is its result's ``error``; so are `GenerationCancelled` and
        `GenerationTimeout`. Raises TypeError for an unknown keyword.
        """
        ...


@all_options_named
@runtime_checkable
class AttentionInspector(Protocol):
    """A model that shows its attention keys."""

    def inspect_attention(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> AttentionSnapshot:
        """The keys that one prefill of this prompt computes.

        Raises `RequestError` for a prompt that cannot run, or that ``cancel`` or ``timeout``
        stopped; TypeError for an unknown keyword, `OptionError` for a value.
        """
        ...


@runtime_checkable
class MemoryReporting(Protocol):
    """A model that knows its device memory."""

    def memory(self) -> MemoryReport:
        """The device memory held now, and the peak since the last reset."""
        ...

    def reset_peak_memory(self) -> None:
        """Start the peak anew."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A model that says what was chosen for the user, and why."""

    def choices(self) -> Sequence[Choice]:
        """The device at least; dtype, BLAS, batch size and the like: each with its reason."""
        ...


@runtime_checkable
class Adapting(Protocol):
    """A model that runs several adapters over one set of weights, which are in memory once."""

    def with_adapter(self, path: str | os.PathLike[str] | None, /) -> TextModel:
        """The same model with another adapter, and with none for None.

        It is a model of its own beside this one: either may be closed first, and both may be used
        at once. What one keeps between calls is never the other's. Raises what loading with
        ``adapter_path`` raises, and this model goes on as it was.
        """
        ...


@runtime_checkable
class Declaring(Protocol):
    """A model that says itself what it offers, of a backend whose models differ in that.

    So do models behind a server, which offer what that server does. Their backend's
    ``capabilities`` are the most that any of them offers; `core.support.offered` asks both.
    """

    def declared(self) -> frozenset[Capability]:
        """What this model offers, load options and the backend's own protocols included.

        It is the same from load to close, and what ``isinstance`` says of the model agrees.
        """
        ...


class AsyncStream(Protocol[Item]):
    """What a request gives one by one, to ``async for``: tokens, pairs or results.

    ``finish_reason`` is None until it has ended, and always of what is no stream of tokens;
    ``metrics`` are final once it has ended.
    """

    @property
    def finish_reason(self) -> FinishReason | None:
        """Why the stream ended."""
        ...

    @property
    def metrics(self) -> GenerateMetrics:
        """What it cost."""
        ...

    def __aiter__(self) -> AsyncIterator[Item]: ...

    async def __anext__(self) -> Item: ...

    async def aclose(self) -> None:
        """Stop the request; may be called at any time and more than once."""
        ...


@runtime_checkable
class Asynchronous(Protocol):
    """A model that waits in the event loop: `core.aio` takes no thread for a call of it.

    ``operation`` is the name of a method of the model, and what follows are its arguments: wrong
    ones raise as they do there. A task that is cancelled while it waits stops its request.
    """

    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """What that method returns, ``classify`` say, and what it cost."""
        ...

    def stream_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> AsyncStream[Any]:
        """What that method gives: ``generate``, ``chat``, ``submit``, ``stream_tokens``,
        ``batch_stream`` or ``classify_iter``. Wrong options raise here, work begins later."""
        ...


@runtime_checkable
class Trainable(Protocol):
    """A model whose adapter can be trained in place.

    Options and examples are checked at the call: `OptionError` for a value, TypeError for another
    config, `TrainingError` for what is not an example, and for examples that nothing can be learned
    from. The model answers with the adapter as it is, between two steps, after the last, and where
    the run was closed early.
    """

    def train(self, examples: Examples, config: TrainConfig | None = None, /) -> TrainingRun:
        """Train a LoRA adapter; one report per step, and it trains as these are read.

        An adapter that the model has is trained on where it has the shape that is asked for; a
        model without one gets one, whose B is zero, so that it changes nothing before the first
        step. Raises `TrainingError` at the step whose loss is no number; the adapter is then the
        last one whose loss was one.
        """
        ...

    def save_adapter(self, directory: str | os.PathLike[str], /) -> None:
        """Write the adapter where ``LoadConfig.adapter_path`` can read it.

        Raises `TrainingError` where the model has none, OSError where it cannot be written.
        """
        ...


@runtime_checkable
class ModelProbe(Protocol):
    """A backend that can tell, cheaply, whether it would load a model."""

    def refusal(self, path: str | os.PathLike[str], /) -> str | None:
        """Why it would not load a model, by config.json or GGUF header; None when it would."""
        ...


@runtime_checkable
class ModelFinding(Protocol):
    """A backend that knows models of its own, in a format that `core` does not know.

    So `core.discover` lists them, and `core.load_model` chooses the backend for them.
    """

    def describe_model(self, path: str, /) -> DiscoveredModel | None:
        """Return the model that a path is to this backend, or None for any other path.

        ``path`` is absolute, or an address (``scheme://...``), and may be anything: a file or a
        directory of another program, without permission, or gone. Of a model the headers alone are
        read. Discovery asks for each directory and each file that it meets, so look at the name
        first. Does not raise.

        The result has this ``path``, one of the backend's ``formats``, and a ``problem`` where the
        files are damaged. `core` fills in ``source``, ``names``, and ``modified`` where it is 0. A
        directory that is a model is one model: the files in it are not asked about.
        """
        ...


@runtime_checkable
class DeviceReporting(Protocol):
    """A backend that lists what it would compute on."""

    def devices(self) -> Sequence[Device]:
        """The devices, best first; empty only where the backend cannot run. Does not raise."""
        ...
