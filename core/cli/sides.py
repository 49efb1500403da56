"""What is held beside something else: a model, or one flag that is another one there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


def with_side(side: str, flags: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The flags as this side has them: ``NAME=VALUE`` changes one, anything else is a model.

    Raises `click.UsageError` for a name that is none of ``names``.
    """
    name, equals, value = side.partition("=")
    if not equals:
        return {**flags, "model": side}
    flag = name.replace("-", "_")
    if flag not in names:
        known = ", ".join(f"{each.replace('_', '-')}=..." for each in names)
        raise click.UsageError(f"--compare {name}=...: give a model, or one of {known}.")
    return {**flags, flag: value}
