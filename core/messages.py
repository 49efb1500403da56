"""The messages of a conversation, as callers give them, read and checked in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import get_args

from core import validate
from core.errors import ChatTemplateError
from core.types import Message, Role

_KEYS = {"role", "content"}
_MESSAGE = "core.Message(role, content) or {'role': ..., 'content': ...}"


def checked_messages(messages: object) -> list[Message]:
    """The messages as a list, mappings with the keys role and content among them.

    Raises TypeError, with the message's index, for anything else, and for contents that are no
    text.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise TypeError(f"A conversation is a sequence of {_MESSAGE}.")
    return [_message(index, turn) for index, turn in enumerate(messages)]


def checked_conversation(messages: object) -> list[Message]:
    """The messages of a chat, of which there is one at least, each of a known role.

    Raises TypeError like `checked_messages`, `ChatTemplateError`, `InvalidOptionError`.
    """
    turns = checked_messages(messages)
    if not turns:
        raise ChatTemplateError("There are no messages to render. Give at least one.")
    for index, turn in enumerate(turns):
        validate.one_of(f"messages[{index}].role", turn.role, get_args(Role))
    return turns


def _message(index: int, turn: object) -> Message:
    if isinstance(turn, Mapping):
        if set(turn) != _KEYS:
            keys = ", ".join(map(repr, turn)) or "none"
            raise TypeError(f"Message {index} has the keys {keys}: it is to be {_MESSAGE}.")
        turn = Message(turn["role"], turn["content"])
    if not isinstance(turn, Message):
        raise TypeError(f"Message {index} is a {type(turn).__name__}, and not {_MESSAGE}.")
    content: object = turn.content  # whatever it was made with
    if not isinstance(content, str):
        kind = type(content).__name__
        raise TypeError(f"The content of message {index} is a {kind}, and not a string.")
    return turn
