"""The forms that rows are read and written in, and the names of files that say which."""

from __future__ import annotations

import os

FORMS = ("text", "jsonl", "json", "csv", "tsv", "parquet")

_SUFFIXES = {
    **{".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    **{".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"},
}


def form_of_name(name: str) -> str | None:
    """The form that a file's suffix names, if any."""
    return _SUFFIXES.get(os.path.splitext(name)[1].lower())
