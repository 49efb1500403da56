"""What the parts of this package need of a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from core.chat import RenderedPrompt
from core.text_stream import Detokenizer
from core.types import Choice, Conversation, ModelInfo
from core_runtime.special_texts import SpecialTexts

ENDLESS = 2**62
"""As many tokens as anybody may want."""


class Memory(NamedTuple):
    """Device memory in bytes."""

    peak: int
    active: int


class ContinuingTokenizer(Protocol):
    """A tokenizer, as far as finding a label's tokens needs it."""

    def encode(self, text: str) -> list[int]:
        """Ids of a prompt, with BOS where the model has one."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts."""
        ...

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Ids of the prompt with each continuation behind it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out."""
        ...

    def last_cut(self, text: str) -> int:
        """A place near the end of a text where its tokens part; 0 where none is known.

        What stands in front has the same tokens whatever follows, and what stands behind as if
        nothing stood in front.
        """
        ...


class ServedTokenizer(ContinuingTokenizer, Protocol):
    """A tokenizer, as far as requests need it. Safe to use from several threads."""

    @property
    def special_texts(self) -> SpecialTexts:
        """What warns of special tokens that plain prompts spell."""
        ...

    def fewest_tokens(self, text: str) -> int:
        """How many tokens a text has at least, from its length alone; 0 where that tells nothing.

        Mostly its bytes, divided by those of the longest token: where no byte is dropped or joined
        with others into one unknown token, and no normalizer shortens the text.
        """
        ...

    def render_chat(self, messages: Conversation, check: Callable[[], None], /) -> RenderedPrompt:
        """The prompt that asks for the assistant's next turn; ``check`` may raise meanwhile."""
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
    def own_context(self) -> int:
        """The context that the model was made for; ``info`` has the one it was loaded with."""
        ...

    @property
    def choices(self) -> Sequence[Choice]:
        """What was chosen at load, and why."""
        ...

    @property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end every generation."""
        ...

    @property
    def rotates(self) -> bool:
        """Whether a generation goes on beyond the context."""
        ...

    def memory(self) -> Memory:
        """What is held now, and the peak; from any thread."""
        ...


def room(model: ServedModel, prompt_tokens: int) -> int:
    """How many tokens may be drawn behind a prompt: one at least."""
    return ENDLESS if model.rotates else max(1, model.info.context_length - prompt_tokens)
