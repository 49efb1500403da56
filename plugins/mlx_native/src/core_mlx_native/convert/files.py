"""Files of a conversion: written in plain formats, and forced to disk before they are shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write an object as indented JSON in UTF-8."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with line ends as they are."""
    path.write_bytes(text.encode())


def sync_tree(directory: Path) -> None:
    """Force a flat directory and the files in it to disk."""
    for path in (*directory.iterdir(), directory):
        sync(path)


def sync(path: Path) -> None:
    """Force one file or one directory's listing to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
