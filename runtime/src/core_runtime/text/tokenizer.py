"""Interfaces of a model's tokenizer that this package needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from core.kit.chat import RenderedPrompt
from core.kit.text_stream import Detokenizer
from core.options import GenerateConfig
from core.types import Conversation
from core_runtime.text.special_texts import SpecialTexts


class ContinuingTokenizer(Protocol):
    """A tokenizer, as far as finding a label's tokens needs it."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt, with BOS if the model has one."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Do `encode` for many texts."""
        ...

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Return the ids of the prompt with each continuation appended."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens left out."""
        ...

    def last_cut(self, text: str) -> int:
        """Return a place near a text's end from which on its tokens are the rest's own; 0: none.

        The rest has the tokens that it has by itself, whatever follows it.
        """
        ...


class ServedTokenizer(ContinuingTokenizer, Protocol):
    """A tokenizer, as far as requests need it. Safe to use from several threads."""

    @property
    def special_texts(self) -> SpecialTexts:
        """The special tokens, as far as prompts and stop strings spell them."""
        ...

    def token_text(self, token_id: int, /) -> str:
        """Return the text of one token by itself, a special one's too; empty for unknown ids."""
        ...

    def fewest_tokens(self, text: str) -> int:
        """Return how many tokens a text has at least, from its length alone.

        0 where that tells nothing.

        Mostly its bytes, divided by those of the longest token: where no byte is dropped or joined
        with others into one unknown token, and no normalizer shortens the text.
        """
        ...

    def render_chat(
        self, messages: Conversation, check: Callable[[], None], config: GenerateConfig, /
    ) -> RenderedPrompt:
        """Return the prompt that ``config`` asks for, which has the options of a chat template.

        It asks for the assistant's next turn, or ends with its last; ``check`` may raise meanwhile.
        """
        ...

    def detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """Return the text of tokens that continue a prompt, as they come."""
        ...
