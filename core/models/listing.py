"""Listings of folders that may be missing or unreadable, and then count as empty."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator


def expanded(path: str) -> str:
    """Return the absolute form of a path, with ``~`` expanded if it names a user's home."""
    try:
        return os.path.abspath(os.path.expanduser(path))
    except ValueError:  # a null character, or no Unicode, in a user's name
        return os.path.abspath(path)


def names_in(directory: str) -> list[str]:
    """Return the names in a directory, sorted."""
    try:
        return sorted(os.listdir(directory))
    except (OSError, ValueError):  # ValueError: a path that no file system has
        return []


def files_below(directory: str, depth: int) -> Iterator[str]:
    """Yield the files in a directory, and in those below it as deep as ``depth`` levels."""
    for name in names_in(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            if depth > 1:
                yield from files_below(path, depth - 1)
        else:
            yield path


def stat_of(path: str) -> os.stat_result | None:
    """Return the status of a regular file or a directory; None for anything else."""
    try:
        facts = os.stat(path)
    except (OSError, ValueError):
        return None
    return facts if stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode) else None
