"""A row of input, and the errors of single rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.errors import RequestError

if TYPE_CHECKING:
    from core.types import Message


class InputError(RequestError):
    """A row of the input cannot be read. The message has its place and the expected format."""


class MissingFieldError(InputError):
    """A record lacks a field. The message lists its fields."""


@dataclass(frozen=True, slots=True)
class Row:
    """One prompt as the user gave it.

    ``line`` is its first line in the input, from 1; in Parquet the number of the row. ``identity``
    is its id with the field's name. ``fields`` are all fields of the record, and ``size`` about how
    many bytes it had. ``text`` is the last message of a conversation.
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
        """Its place in the input, for messages: ``line 3``."""
        return f"{self.unit} {self.line}"
