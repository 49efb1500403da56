"""The conversation of ``infer-cli chat``, and the file it is saved in."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import OptionError, RequestError
from core.messages import checked_messages
from core.system import outputs
from core.types import Message

_KIND = "core.conversation"
_FILE = outputs.Kind("a conversation", re.compile(rb'\{"kind":"%b"' % _KIND.encode()))
_LARGEST = 64 * 2**20  # bytes
_UNREAD = (TypeError, OptionError)


class ConversationError(RequestError):
    """A conversation cannot be saved, or a file is not a conversation."""


@dataclass(slots=True)
class Conversation:
    """The turns so far, and the system message before them, if any."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)

    def messages(self, *more: Message) -> list[Message]:
        """Return all messages, with more at the end."""
        first = [] if self.system is None else [Message("system", self.system)]
        return [*first, *self.turns, *more]

    def drop_oldest(self) -> int:
        """Drop the oldest message with its answer; return the number of messages dropped."""
        users = [place for place, turn in enumerate(self.turns) if turn.role == "user"]
        end = users[1] if len(users) > 1 else len(self.turns)
        del self.turns[:end]
        return end

    def take_last(self) -> Message | None:
        """Remove the last message of the user and what follows it; return it, if there is one."""
        users = [place for place, turn in enumerate(self.turns) if turn.role == "user"]
        if not users:
            return None
        message = self.turns[users[-1]]
        del self.turns[users[-1] :]
        return message

    def save(self, file: str) -> None:
        """Write the conversation as one line of JSON, which ``generate -i`` can read.

        Replaces a conversation that was saved before. Raises `OutputError` for a file
        of anything else, `ConversationError` for a text that is not Unicode, and OSError.
        """
        import msgspec

        try:
            turns = [message.to_dict() for message in self.messages()]
            data = msgspec.json.encode({"kind": _KIND, "messages": turns})
        except UnicodeEncodeError as error:
            raise ConversationError(
                f"Cannot save {file}: a message is not valid Unicode ({error})."
            ) from error
        outputs.write(_path(file), data + b"\n", _FILE)

    def load(self, file: str) -> None:
        """Continue the conversation in a file. Raises `ConversationError` and OSError."""
        import msgspec

        try:
            with _path(file).open("rb") as stream:
                text = stream.read(_LARGEST + 1)
        except FileNotFoundError:
            raise ConversationError(
                f"The file {file!r} does not exist. /save FILE writes one."
            ) from None
        if len(text) > _LARGEST:
            raise ConversationError(
                f"{file} is not a conversation: it is longer than {_LARGEST} bytes."
            )
        try:
            saved = msgspec.json.decode(text.decode("utf-8-sig"), type=dict[str, Any])
            messages = checked_messages(saved.get("messages"))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, *_UNREAD) as error:
            message = f'{file} is not a conversation, {{"messages": [...]}}: {error}'
            raise ConversationError(message) from error
        first = messages[:1]
        self.system = first[0].content if first and first[0].role == "system" else None
        self.turns = messages if self.system is None else messages[1:]


def _path(file: str) -> Path:
    path = Path(os.path.expanduser(file))
    if "\0" in file or (path.exists() and not path.is_file()):
        raise ConversationError(f"{file!r} is not a regular file.")
    return path
