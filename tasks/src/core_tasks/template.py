"""Prompt templates of tasks, with ``{text}``, and ``{label}`` in mode "many".

As in infer-cli, ``{{text}}`` is the literal ``{text}``, and other braces are literal.
"""

from __future__ import annotations

import re

from core.errors import TaskError

_PLACES = re.compile(r"\{\{([^\W\d][^{}]*)\}\}|\{([^\W\d][\w .\-]*)\}")


def check_template(template: str, places: set[str]) -> None:
    """Raise `TaskError` unless the template has exactly these places, each at least once."""
    fields = taken(template)
    for missing in sorted(places - fields):
        raise TaskError(
            f"The template {_short(template)} must contain {{{missing}}}. Put it where each "
            f"{missing} belongs."
        )
    for other in sorted(fields - places):
        raise TaskError(
            f"The template {_short(template)} contains {{{other}}}, but this task only fills in "
            f"{' and '.join(f'{{{place}}}' for place in sorted(places))}. Double literal braces: "
            f"{{{{{other}}}}}."
        )


def taken(template: str) -> set[str]:
    """Return the names of the places."""
    return {match[2] for match in _PLACES.finditer(template) if match[2] is not None}


def filled(template: str, **values: str) -> str:
    """Return the prompt; braces in the values are not replaced."""

    def value(match: re.Match[str]) -> str:
        return f"{{{match[1]}}}" if match[1] is not None else values[match[2]]

    return _PLACES.sub(value, template)


def behind(template: str, place: str) -> str:
    """Return the part of the template after the last of this place."""
    ends = [match.end() for match in _PLACES.finditer(template) if match[2] == place]
    return template[ends[-1] :].lstrip()


def _short(template: str) -> str:
    shown = repr(template)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
