"""One row of input as it was read, and the errors that are only its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.errors import RequestError

if TYPE_CHECKING:
    from core.types import Message


class InputError(RequestError):
    """A row of the input cannot be read. The message says which, and what it should look like."""


class MissingFieldError(InputError):
    """A record has no text where it is looked for. The message says what fields it has."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as the user gave it.

    ``line`` is where it begins in the input, from 1; of Parquet the number of the row. ``identity``
    is what the user called it, under the key it came with. ``fields`` are all that the record had,
    and ``size`` about how many bytes. Of a conversation, ``text`` is the last message.
    """

    line: int
    text: str = ""
    fields: Mapping[str, object] = field(default_factory=dict)
    messages: tuple[Message, ...] | None = None
    identity: tuple[str, object] | None = None
    error: Exception | None = None
    unit: str = "line"
    size: int = 0

    @property
    def place(self) -> str:
        """Where it stands, for messages: ``line 3``."""
        return f"{self.unit} {self.line}"
