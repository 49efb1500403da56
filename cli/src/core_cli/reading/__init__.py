"""Input readers: a file in any of these formats becomes rows, one by one."""

from __future__ import annotations

import os

MAX_LINE_BYTES = 16 * 2**20
"""More than a context of a million tokens; a longer line is rejected without reading it."""
MAX_SKIPPED_BYTES = 2**30
"""The rest of such a line is skipped; if it is longer than this, reading ends."""

FORMS: tuple[str, ...] = ("text", "jsonl", "json", "csv", "tsv", "parquet")
INPUT_FORMS = (*FORMS, "xlsx")

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".xlsx": "xlsx",
}


def form_of_name(name: str) -> str | None:
    """Return the format of a file's suffix, if any."""
    return _SUFFIXES.get(os.path.splitext(name)[1].lower())
