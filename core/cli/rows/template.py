"""The text around each text: ``{text}``, and any field of the record by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.cli.reading.row import Row

TEXT = "text"
_PLACES = re.compile(r"\{\{([^\W\d][^{}]*)\}\}|\{([^\W\d][\w .\-]*)\}")
_ESCAPES = re.compile(r"\\(\\|n)")


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with places in it. ``{name}`` is a field's place, ``{{name}}`` is ``{name}``.

    Other braces stand for themselves, and so does everything in a field.
    """

    source: str

    @classmethod
    def typed(cls, source: str) -> Template:
        """One from a command line, where ``\\n`` is a line break and ``\\\\n`` these two."""

        def unescaped(found: re.Match[str]) -> str:
            return "\n" if found[1] == "n" else "\\"

        return cls(_ESCAPES.sub(unescaped, source))

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields that it takes, each once."""
        found = (match[2] for match in _PLACES.finditer(self.source))
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def filled(self, row: Row, text: str) -> str:
        """The prompt of a row. Raises `InputError` for a field that it lacks."""

        def value(found: re.Match[str]) -> str:
            if found[1] is not None:
                return f"{{{found[1]}}}"
            return text if found[2] == TEXT else _shown(row, found[2], row.fields)

        return _PLACES.sub(value, self.source)


def _shown(row: Row, name: str, fields: Mapping[str, object]) -> str:
    import json

    from core.cli.reading.row import InputError

    if fields.get(name) is None:
        raise InputError(f"{row.place} has no {name!r}, which --template takes.")
    value = fields[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
