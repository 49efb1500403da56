"""The fake's tokens: each character is one, and its id is its code point.

So ``max_tokens`` counts characters, and a test sees at once where a text was cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

from core.kit.chat import RenderedPrompt, refuse_variables, render
from core.options import GenerateConfig
from core.types import Message

SPECIAL = ("<end>", "<system>", "<user>", "<assistant>")
END = 0x110000  # of a turn, and of a generation; Unicode ends before it
VOCAB_SIZE = END + len(SPECIAL)
PRINTABLE = range(0x20, 0x7F)

_IDS = {text: END + index for index, text in enumerate(SPECIAL)}
_SPLIT = re.compile("(" + "|".join(SPECIAL) + ")")
_LAST_TURN = re.compile(
    ".*<(?:system|user|assistant)>(.*)<end><assistant>|.*<assistant>(.*)", re.DOTALL
)


def encode(text: str) -> list[int]:
    """Return the ids of a prompt; only a `RenderedPrompt` spells special tokens."""
    if isinstance(text, RenderedPrompt):
        return list(_rendered(text))
    return list(map(ord, text))


def decode(ids: Sequence[int]) -> str:
    """Return the text of these ids without special tokens; U+FFFD for half a surrogate pair."""
    return "".join(map(_text, ids))


def render_chat(
    messages: Sequence[Message], config: GenerateConfig | None = None
) -> RenderedPrompt:
    """Return the prompt of a conversation: each message as ``<role>content<end>``.

    The template reads no variables, so each one is an error.
    """
    if config is not None:
        refuse_variables(config)
    template = _said if config is not None and config.continue_final_message else _template
    return render(messages, SPECIAL, template, config=config)


def asked(prompt: str) -> str:
    """Return the key of a test's answers: the prompt, or the last message of a conversation."""
    if not isinstance(prompt, RenderedPrompt):
        return prompt
    turn = _LAST_TURN.fullmatch(prompt.marked)
    return (turn[1] or turn[2] or "").replace(prompt.marker, "") if turn else str(prompt)


class Detokenizer:
    """A `core.kit.text_stream.Detokenizer`; no character is ever split over tokens."""

    incomplete = False

    def add(self, token_id: int) -> str:
        """Return the token's character."""
        return _text(token_id)

    def finish(self) -> str:
        """Return "": no text is incomplete."""
        return ""


def _text(token_id: int) -> str:
    if not 0 <= token_id < END:
        return ""
    return "\ufffd" if 0xD800 <= token_id < 0xE000 else chr(token_id)


def _rendered(prompt: RenderedPrompt) -> Iterator[int]:
    for part in _SPLIT.split(prompt.marked):
        if part in _IDS:
            yield _IDS[part]
        else:
            yield from map(ord, part.replace(prompt.marker, ""))


def _template(messages: Collection[Message]) -> str:
    return _said(messages) + "<assistant>"


def _said(messages: Collection[Message]) -> str:
    return "".join(f"<{message.role}>{message.content}<end>" for message in messages)
