"""Which model it was: a name people know, and a checksum of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path


def model_name(path: str) -> str:
    """The file's or directory's name; ``org/name`` for one in the Hugging Face cache."""
    for folder in Path(path).parents:
        if folder.name.startswith("models--"):
            return folder.name.removeprefix("models--").replace("--", "/")
    return Path(path).name


def model_sha256(path: str) -> str | None:
    """The SHA-256 of a file; of a directory, that of the lines which ``sha256sum`` prints for it.

    Those are ``<digest>  <relative path>``, sorted by path (as bytes), of all files in it whose
    names do not start with a dot. None when something cannot be read.
    """
    root = Path(path)
    try:
        if root.is_file():
            return _digest(root)
        files = sorted(
            (file.relative_to(root).as_posix(), file)
            for file in root.rglob("*")
            if file.is_file() and not file.name.startswith(".")
        )
        lines = "".join(f"{_digest(file)}  {name}\n" for name, file in files)
    except OSError:
        return None
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest() if files else None


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
