"""Prompt templates with ``{text}`` and any field of the record."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core_cli.reading.row import Row

TEXT = "text"
_PLACES = re.compile(r"\{\{([^\W\d][^{}]*)\}\}|\{([^\W\d][\w .\-]*)\}")
_ESCAPES = re.compile(r"\\(\\|n)")


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with placeholders: ``{name}`` is a field, ``{{name}}`` is a literal ``{name}``.

    Other braces are literal, and so is everything in a field.
    """

    source: str

    @classmethod
    def typed(cls, source: str) -> Template:
        """Return a typed template, where ``\\n`` is a line break and ``\\\\n`` these characters."""

        def unescaped(escape: re.Match[str]) -> str:
            return "\n" if escape[1] == "n" else "\\"

        return cls(_ESCAPES.sub(unescaped, source))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that the template uses, each once."""
        names = (match[2] for match in _PLACES.finditer(self.source))
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def filled(self, row: Row, text: str) -> str:
        """Return the prompt of a row. Raises `InputError` for a field that it lacks."""

        def value(placeholder: re.Match[str]) -> str:
            if placeholder[1] is not None:
                return f"{{{placeholder[1]}}}"
            return text if placeholder[2] == TEXT else _shown(row, placeholder[2], row.fields)

        return _PLACES.sub(value, self.source)


def _shown(row: Row, name: str, fields: Mapping[str, object]) -> str:
    import json

    from core_cli.reading.row import InputError

    if fields.get(name) is None:
        raise InputError(f"{row.place} has no field {name!r}, which --template uses.")
    value = fields[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
