"""The text around each text of a task: ``{text}``, and ``{label}`` where each label is asked for.

As in infer-cli, ``{{text}}`` is ``{text}``, and other braces stand for themselves.
"""

from __future__ import annotations

import re

from core.errors import TaskError

_PLACES = re.compile(r"\{\{([^\W\d][^{}]*)\}\}|\{([^\W\d][\w .\-]*)\}")


def check_template(template: str, places: set[str]) -> None:
    """Raise `TaskError` unless the template has exactly these places, each once or more."""
    found = taken(template)
    for missing in sorted(places - found):
        raise TaskError(
            f"The template {_short(template)} has no {{{missing}}}. Put it where each {missing} "
            "belongs."
        )
    for other in sorted(found - places):
        raise TaskError(
            f"The template {_short(template)} has {{{other}}}, and this task fills in "
            f"{' and '.join(f'{{{place}}}' for place in sorted(places))} alone. Braces that stand "
            f"for themselves are doubled: {{{{{other}}}}}."
        )


def taken(template: str) -> set[str]:
    """The names of the places."""
    return {match[2] for match in _PLACES.finditer(template) if match[2] is not None}


def filled(template: str, **values: str) -> str:
    """The prompt; what a text holds is left as it is, braces and all."""

    def value(found: re.Match[str]) -> str:
        return f"{{{found[1]}}}" if found[1] is not None else values[found[2]]

    return _PLACES.sub(value, template)


def behind(template: str, place: str) -> str:
    """What stands behind the last of this place, as a template of its own."""
    ends = [match.end() for match in _PLACES.finditer(template) if match[2] == place]
    return template[ends[-1] :].lstrip()


def _short(template: str) -> str:
    shown = repr(template)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
