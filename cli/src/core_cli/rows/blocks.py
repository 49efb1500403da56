"""Divides rows into blocks; those of a job depend only on the input, for resuming."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from core.kit.support import block_sizes
from core_cli.reading.row import Row

FIRST_BLOCK, LARGEST_BLOCK = 32, 256
"""The first results should come soon; a block that was interrupted is computed again whole."""
LARGEST_TEXT = 16 * 2**20
"""Characters of texts, or bytes of records, after which a block ends early."""


def blocks(
    rows: Iterable[Row], more_waits: Callable[[], bool] = lambda: True, size: int | None = None
) -> Iterator[list[Row]]:
    """Yield the rows by 32, 64, 128, and 256 from then on, or always by ``size``.

    A block has fewer if no more rows are available.
    """
    source = iter(rows)
    for count in block_sizes(size or FIRST_BLOCK, size or LARGEST_BLOCK):
        block = list(_bounded(islice(source, count), more_waits))
        if not block:
            return
        yield block


def _bounded(rows: Iterable[Row], more_waits: Callable[[], bool]) -> Iterator[Row]:
    """Yield rows up to a maximum total size, or up to the last one available."""
    length = 0
    for row in rows:
        yield row
        length += max(len(row.text), row.size)
        if length > LARGEST_TEXT or not more_waits():
            return
