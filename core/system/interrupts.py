"""What an interrupt must not lose: a signal's handler may raise behind every call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import TypeVar

T = TypeVar("T")


def hold(held: list[T], make: Callable[[], T]) -> None:
    """Append what ``make`` makes: a function of C's, a class, or a `functools.partial` of one.

    Made and put where it is found again in one call of C's, between whose steps no handler runs:
    ``made = make()`` would lose it where one raises behind the call.
    """
    held.extend(starmap(make, ((),)))
