"""Sizes as people write them: ``6GB``, ``500 MiB``."""

from __future__ import annotations

import re

import click

_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def size(text: str) -> int:
    """Return the bytes of a size: units of 1,000, or of 1,024 with an i.

    Raises `click.BadParameter`.
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is not a size. Write, for example, 6GB, 500MB or 2GiB.")
    number, unit, binary = found.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
