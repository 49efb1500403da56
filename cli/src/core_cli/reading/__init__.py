"""Input readers: a file in any of these formats becomes rows, one by one."""

from __future__ import annotations

import os

MAX_LINE_BYTES = 16 * 2**20
"""More than a context of a million tokens holds; a longer line is refused, unread."""
MAX_SKIPPED_BYTES = 2**30
"""The rest of such a line is passed over; where it goes on beyond this, the input is."""

FORMS = ("text", "jsonl", "json", "csv", "tsv", "parquet")

_SUFFIXES = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"},
}


def form_of_name(name: str) -> str | None:
    """Return the format of a file's suffix, if any."""
    return _SUFFIXES.get(os.path.splitext(name)[1].lower())
