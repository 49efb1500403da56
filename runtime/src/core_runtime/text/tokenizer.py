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
    """The part of a tokenizer that finds a label's tokens."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a prompt, with BOS if the model has one."""
        ...

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of many texts, like `encode`."""
        ...

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Return the ids of the prompt with each continuation appended."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens."""
        ...

    def last_cut(self, text: str) -> int:
        """Return a place near a text's end after which its tokens are the rest's own; 0: none.

        The rest has the same tokens without the text before it, whatever follows.
        """
        ...


class ServedTokenizer(ContinuingTokenizer, Protocol):
    """The part of a tokenizer that requests need. Safe to use from several threads."""

    @property
    def special_texts(self) -> SpecialTexts:
        """The special tokens, by their texts."""
        ...

    def token_text(self, token_id: int, /) -> str:
        """Return the text of one token, also of a special one; empty for an unknown id."""
        ...

    def fewest_tokens(self, text: str) -> int:
        """Return the least number of tokens of a text, from its length alone; 0 if unknown.

        Usually its bytes divided by the bytes of the longest token, unless the tokenizer drops or
        joins bytes, or a normalizer shortens the text.
        """
        ...

    def render_chat(
        self, messages: Conversation, check: Callable[[], None], config: GenerateConfig, /
    ) -> RenderedPrompt:
        """Return the prompt of a conversation; ``config`` has the options of the chat template.

        It ends at the start of the assistant's next turn, or continues its last one; ``check`` is
        polled.
        """
        ...

    def detokenizer(self, prompt: Sequence[int]) -> Detokenizer:
        """Return a detokenizer of the tokens that continue a prompt."""
        ...
