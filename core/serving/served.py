"""What the parts of this package need of a backend: a loaded model, and an engine that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from core.chat import RenderedPrompt
from core.text_stream import Detokenizer
from core.types import Message, ModelInfo

if TYPE_CHECKING:
    from core.serving.stopwatch import Stopwatch
    from core.serving.waiting import Job

T = TypeVar("T")


class Memory(NamedTuple):
    """Device memory in bytes."""

    peak: int
    active: int


class ContinuingTokenizer(Protocol):
    """What finding a label's tokens takes."""

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with BOS where the model has one."""
        ...

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Ids of the prompt with each continuation behind it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out."""
        ...


class ServedTokenizer(ContinuingTokenizer, Protocol):
    """Safe to use from several threads."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts."""
        ...

    def render_chat(self, messages: Sequence[Message]) -> RenderedPrompt:
        """The prompt that asks for the assistant's next turn."""
        ...

    def detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """The text of tokens that continue a prompt, as they come."""
        ...


class ServedModel(Protocol):
    """What a load leaves, as far as requests look at it."""

    @property
    def tokenizer(self) -> ServedTokenizer:
        """Text to token ids and back."""
        ...

    @property
    def info(self) -> ModelInfo:
        """Facts about the model."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end every generation."""
        ...

    def room(self, prompt_tokens: int) -> int:
        """How many tokens may be drawn behind a prompt: one at least."""
        ...

    def memory(self) -> Memory:
        """What is held now, and the peak; from any thread."""
        ...


class Engine(Protocol):
    """Runs jobs on a thread of its own, and sends each request's tokens to its sink."""

    @property
    def watch(self) -> Stopwatch:
        """Its time, by kind of work."""
        ...

    def submit(self, jobs: Iterable[Job], /) -> None:
        """Queue jobs, in order; from any thread. Raises `core.ModelClosedError`."""
        ...

    def receive(self, items: SimpleQueue[T], /) -> T:
        """Wait for what a request sends; raises instead of waiting for ever."""
        ...
