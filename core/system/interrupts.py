"""Storage that an interrupt cannot lose: a signal handler may raise after any call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import TypeVar

T = TypeVar("T")


def hold(held: list[T], make: Callable[[], T]) -> None:
    """Append the result of ``make``: a C function, a class, or a `functools.partial` of one.

    It is made and stored in one call into C, during which no handler runs: ``made = make()`` would
    lose it if a handler raises after the call.
    """
    held.extend(starmap(make, ((),)))
