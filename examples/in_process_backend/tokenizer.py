"""Text to token ids and back: some words, single bytes for all else, and special tokens.

`Tokenizer` is a `core_runtime.text.tokenizer.ServedTokenizer`. Several threads use it at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from core import validate
from core.kit.chat import RenderedPrompt, continued
from core.kit.text_stream import StreamDetokenizer
from core.options import GenerateConfig
from core.types import Conversation
from core_runtime.chat.prompts import ChatPrompts
from core_runtime.text.special_texts import SpecialTexts

_WORDS = (
    " the| a| of| and| to| in| is| it| was| that| for| on| with| not| very| good| bad| new| we"
    "|The|the|ing|er|ed|th|an|on|re|in|es|. |, "
)
WORDS = _WORDS.split("|")
PIECES = [bytes((number,)) for number in range(256)] + [word.encode() for word in WORDS]
BOS = len(PIECES)
EOS = BOS + 1
SPECIAL = {
    text: BOS + index
    for index, text in enumerate(("<s>", "</s>", "<system>", "<user>", "<assistant>"))
}
VOCAB_SIZE = BOS + len(SPECIAL)

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<{{ message.role }}>{{ message.content }}</s>"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)

_IDS = {word: 256 + index for index, word in enumerate(WORDS)}
_LONGEST = max(map(len, (*PIECES, *SPECIAL)))
_PIECE = re.compile("|".join(map(re.escape, sorted(WORDS, key=len, reverse=True))) + "|.", re.S)


class Tokenizer:
    """See `core_runtime.text.tokenizer.ServedTokenizer` for what every method promises."""

    def __init__(self) -> None:
        self._chat = ChatPrompts(TEMPLATE, {"bos_token": "<s>"}, SPECIAL)
        self.special_texts = SpecialTexts(SPECIAL)

    def encode(self, text: str) -> list[int]:
        """Ids with a BOS, which a `core.RenderedPrompt` has from its template."""
        if isinstance(text, RenderedPrompt):
            return self._chat.encode(text, lambda texts: list(map(_pieces, texts)))
        return [BOS, *_pieces(text)]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts."""
        return list(map(self.encode, texts))

    def encode_continued(self, prompt: str, continuations: Sequence[str]) -> list[list[int]]:
        """Return the ids of the prompt followed by each continuation, without special tokens."""
        return self.encode_batch(continued(prompt, continuations, SPECIAL))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens left out, unknown ids too."""
        return b"".join(map(token_bytes, validate.integers("ids", ids, 0))).decode(errors="replace")

    def last_cut(self, text: str) -> int:
        """Nowhere: a word may begin or end with a space, and the longest one wins."""
        return 0

    def token_text(self, token_id: int) -> str:
        """Return one token's text, with U+FFFD for an incomplete character."""
        return token_bytes(token_id).decode(errors="replace")

    def fewest_tokens(self, text: str) -> int:
        """Return its number of bytes, divided by the longest token's."""
        return len(text.encode()) // _LONGEST

    def render_chat(
        self, messages: Conversation, check: Callable[[], None], config: GenerateConfig, /
    ) -> RenderedPrompt:
        """Return the prompt that ``config`` asks for; ``check`` may raise meanwhile."""
        return self._chat.render(messages, check, config)

    def detokenizer(self, prompt: Sequence[int]) -> StreamDetokenizer:
        """The text of tokens that continue a prompt, as they come."""
        return StreamDetokenizer(lambda token, first: token_bytes(token) or None, prompt)

    def close(self) -> None:
        """Let go of the process that renders chats."""
        self._chat.close()


def token_bytes(token_id: int) -> bytes:
    """The bytes of one token, perhaps a part of a character; special and unknown ids have none."""
    return PIECES[token_id] if token_id < BOS else b""


def is_common(token_id: int) -> bool:
    """Return whether it is plain English: a word, or a printable character of ASCII."""
    return 0x20 <= token_id < 0x7F or 256 <= token_id < BOS


def _pieces(text: str) -> list[int]:
    ids: list[int] = []
    for piece in _PIECE.findall(text):
        ids += [_IDS[piece]] if piece in _IDS else piece.encode()
    return ids
