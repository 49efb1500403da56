"""A conversation as the command line keeps it: its turns, and the file that it is saved in."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import RequestError
from core.types import Message

_LARGEST = 64 * 2**20  # bytes


class ConversationError(RequestError):
    """A conversation cannot be kept in a file, or a file holds none."""


@dataclass(slots=True)
class Conversation:
    """The turns so far, and the system message that stands before them, if there is one."""

    system: str | None = None
    turns: list[Message] = field(default_factory=list)

    def messages(self, *more: Message) -> list[Message]:
        """All messages, with more at the end."""
        first = [] if self.system is None else [Message("system", self.system)]
        return [*first, *self.turns, *more]

    def save(self, file: str) -> None:
        """Write it as one line of JSON, such as ``generate -i`` reads.

        Raises `ConversationError` for a text that is no Unicode, and OSError.
        """
        import msgspec

        try:
            data = msgspec.json.encode({"messages": self.messages()})
        except UnicodeEncodeError as error:
            raise ConversationError(f"A message cannot be saved: {error}.") from error
        _path(file).write_bytes(data + b"\n")

    def load(self, file: str) -> None:
        """Go on with the conversation in a file. Raises `ConversationError` and OSError."""
        import msgspec

        with _path(file).open("rb") as stream:
            text = stream.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise ConversationError(f"{file} is longer than {_LARGEST} bytes, and no conversation.")
        try:
            data = msgspec.json.decode(text.decode("utf-8-sig"), type=_Saved)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f'{file} is no conversation: {error}. It is to be {{"messages": [...]}}.'
            raise ConversationError(message) from error
        first = data.messages[:1]
        self.system = first[0].content if first and first[0].role == "system" else None
        self.turns = list(data.messages if self.system is None else data.messages[1:])


def _path(file: str) -> Path:
    path = Path(os.path.expanduser(file))
    if "\0" in file or (path.exists() and not path.is_file()):
        raise ConversationError(f"{file!r} is no file.")
    return path


@dataclass(frozen=True, slots=True)
class _Saved:
    messages: tuple[Message, ...]
