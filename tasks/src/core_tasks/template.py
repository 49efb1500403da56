"""Prompt templates with places for values, such as ``{text}``, of tasks, evaluations and rows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import TaskError

TEXT = "text"
_PLACES = re.compile(r"\{\{([^\W\d][^{}]*)\}\}|\{([^\W\d][\w .\-]*)\}")
_ESCAPES = re.compile(r"\\(\\|n)")


@dataclass(frozen=True, slots=True)
class Template:
    """A prompt with placeholders: ``{name}`` is a field, ``{{name}}`` is a literal ``{name}``.

    Other braces are literal, and so is everything in a value.
    """

    source: str

    @classmethod
    def typed(cls, source: str) -> Template:
        """Return a typed template, where ``\\n`` is a line break and ``\\\\n`` these characters."""

        def unescaped(match: re.Match[str]) -> str:
            return "\n" if match[1] == "n" else "\\"

        return cls(_ESCAPES.sub(unescaped, source))

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that the template uses, each once."""
        names = (match[2] for match in _PLACES.finditer(self.source))
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def check(self, fields: set[str]) -> None:
        """Raise `TaskError` unless the template has exactly these fields, each at least once."""
        used = set(self.fields)
        for missing in sorted(fields - used):
            raise TaskError(
                f"The template {self._short} must contain {{{missing}}}. Put it where each "
                f"{missing} belongs."
            )
        for other in sorted(used - fields):
            raise TaskError(
                f"The template {self._short} contains {{{other}}}, but this task only fills in "
                f"{' and '.join(f'{{{field}}}' for field in sorted(fields))}. Double literal "
                f"braces: {{{{{other}}}}}."
            )

    def filled(self, values: Mapping[str, str]) -> str:
        """Return the prompt. Raises `KeyError` for a field without a value."""

        def value(match: re.Match[str]) -> str:
            return f"{{{match[1]}}}" if match[1] is not None else values[match[2]]

        return _PLACES.sub(value, self.source)

    def after(self, field: str) -> Template:
        """Return the part of the template after the last of this field."""
        ends = [match.end() for match in _PLACES.finditer(self.source) if match[2] == field]
        return Template(self.source[ends[-1] :].lstrip())

    @property
    def _short(self) -> str:
        shown = repr(self.source)
        return shown if len(shown) <= 60 else f"{shown[:60]}…"
