"""A conversation as the command line keeps it: its turns, and the file that it is saved in."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from core.errors import RequestError
from core.types import Message


class ConversationError(RequestError):
    """A file holds no conversation."""


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
        """Write it as one line of JSON, such as ``generate -i`` reads. Raises OSError."""
        import msgspec

        data = msgspec.json.encode({"messages": self.messages()})
        Path(file).expanduser().write_bytes(data + b"\n")

    def load(self, file: str) -> None:
        """Go on with the conversation in a file. Raises `ConversationError` and OSError."""
        import msgspec

        try:
            data = msgspec.json.decode(Path(file).expanduser().read_bytes(), type=_Saved)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            message = f'{file} is no conversation: {error}. It is to be {{"messages": [...]}}.'
            raise ConversationError(message) from error
        first = data.messages[:1]
        self.system = first[0].content if first and first[0].role == "system" else None
        self.turns = list(data.messages if self.system is None else data.messages[1:])


@dataclass(frozen=True, slots=True)
class _Saved:
    messages: tuple[Message, ...]
