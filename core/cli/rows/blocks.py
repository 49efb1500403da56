"""Rows in blocks: those of a file by the input alone, as a job that goes on cuts them anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from core.cli.reading.row import Row
from core.support import block_sizes

FIRST_BLOCK, LARGEST_BLOCK = 32, 256
"""The first results should come soon; a block that was interrupted is computed again whole."""
LARGEST_TEXT = 16 * 2**20
"""Characters of texts, or bytes of records, after which a block ends early."""


def blocks(
    rows: Iterable[Row], more_waits: Callable[[], bool] = lambda: True, size: int | None = None
) -> Iterator[list[Row]]:
    """The rows by 32, 64, 128, and 256 from then on, or always by ``size``.

    There are fewer in a block where no more of them wait.
    """
    source = iter(rows)
    for count in block_sizes(size or FIRST_BLOCK, size or LARGEST_BLOCK):
        block = list(_bounded(islice(source, count), more_waits))
        if not block:
            return
        yield block


def _bounded(rows: Iterable[Row], more_waits: Callable[[], bool]) -> Iterator[Row]:
    """Yield the rows up to the one with which they become too much to hold, or the last yet."""
    length = 0
    for row in rows:
        yield row
        length += max(len(row.text), row.size)
        if length > LARGEST_TEXT or not more_waits():
            return
