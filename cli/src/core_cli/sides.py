"""Parses the values of ``--compare``: a model, or a flag to override."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click


def with_side(side: str, flags: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the flags of this side: ``NAME=VALUE`` overrides one, any other value is a model.

    Raises `click.UsageError` for a name that is not in ``names``.
    """
    name, equals, value = side.partition("=")
    if not equals:
        return {**flags, "model": side}
    flag = name.replace("-", "_")
    if flag not in names:
        known = ", ".join(f"{each.replace('_', '-')}=..." for each in names)
        raise click.UsageError(
            f"--compare {name}=... is not supported. Pass a model, or one of {known}."
        )
    return {**flags, flag: value}
