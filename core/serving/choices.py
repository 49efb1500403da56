"""Choices at load that backends make alike, each with its reason; what the user asks for wins."""

from __future__ import annotations

from core import validate
from core.options import LoadConfig
from core.types import Choice

ASKED = "asked for"


def asked_integer(
    config: LoadConfig, name: str, low: int, high: int | None = None
) -> Choice | None:
    """What the user gave as this one of the backend's own options; None for nothing.

    Raises `core.InvalidOptionError` for what is no integer from ``low`` to ``high``.
    """
    asked = config.options.get(name)
    if asked is None:
        return None
    return Choice(name, str(validate.integer(name, asked, low, high)), ASKED)


def parallel_slots(config: LoadConfig, on_gpu: bool) -> Choice:
    """How many requests decode together."""
    if config.parallel_slots:
        return Choice("parallel_slots", str(config.parallel_slots), ASKED)
    slots = "32" if on_gpu else "8"
    return Choice("parallel_slots", slots, "rows that decode together share each read of a weight")
