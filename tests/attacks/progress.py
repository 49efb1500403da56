"""A word between the steps of a long case: whoever watches sees that it goes on."""

from __future__ import annotations

from collections.abc import Callable

listeners: list[Callable[[], None]] = []


def step() -> None:
    """Something was done."""
    for listener in listeners:
        listener()
