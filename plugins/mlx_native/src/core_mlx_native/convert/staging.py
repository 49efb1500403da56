"""Atomic creation of directories.

Files are written to ``.NAME.partial-PID-…`` next to the target, which is renamed at the end. The
process holds a lock on it; a partial directory without a lock is a leftover and is removed. Files
are flushed to disk before the rename. A model is replaced only if it contains no files other than
those in its record.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from core.errors import ConversionError
from core.system.limited_files import Refused, json_value, read_limited
from core_runtime.checkpoint.own_files import RECORD

_RECORD_LIMIT = 2**24  # bytes
_REPLACED = "replaced"


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write an object as indented JSON in UTF-8."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, with unchanged line endings."""
    path.write_bytes(text.encode())


def sync_tree(directory: Path) -> None:
    """Flush a flat directory and its files to disk."""
    for path in (*directory.iterdir(), directory):
        sync(path)


def sync(path: Path) -> None:
    """Flush one file or one directory's listing to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def staged(target: Path, *, overwrite: bool, private: bool = False) -> Iterator[Path]:
    """Yield a directory to fill, which becomes ``target`` if the block succeeds.

    Otherwise it is removed. A ``private`` one is its owner's alone, like the adapter that is merged
    into it. Raises `ConversionError` if the target is in use.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    check_target(target, overwrite=overwrite)

    # The lock shows other processes that this directory is in use.
    partial, lock = _locked_directory(target, 0o700 if private else 0o777)
    try:
        yield partial
        _note_files(partial)
        sync_tree(partial)
        _move(partial, target, overwrite=overwrite)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # the failed or the replaced directory
        os.close(lock)


def _note_files(directory: Path) -> None:
    """Add the names of all files to the record, so that a later run may replace them."""
    file = directory / RECORD
    record = json.loads(file.read_bytes()) if file.exists() else {}
    write_json(file, {**record, "files": sorted(_files(directory) | {RECORD})})


def _files(directory: Path) -> set[str]:
    """Return the paths, from the directory, of all files and folders in it."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a non-empty target, unless it is a model to overwrite.

    All files of such a model must have been written by its conversion.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise ConversionError(f"{target} is a file. Choose a directory for the model.")

    # Only a model made by a conversion may be replaced.
    names = _files(target)
    if names and not overwrite:
        raise ConversionError(
            f"{target} is not empty. Choose another directory, or replace the model in it "
            "(--overwrite, overwrite=True)."
        )
    if names and (foreign := _foreign(target, names)):
        raise ConversionError(
            f"{target} is not overwritten: no conversion has written {foreign[0]} in it. Choose "
            "another directory, or move that file away."
        )
    if overwrite and target in (here := Path.cwd(), *here.parents):
        raise ConversionError(
            f"{target} is the current directory, or contains it, and cannot be replaced. Change "
            "to another directory first."
        )


def _foreign(target: Path, names: set[str]) -> list[str]:
    """Return the sorted names of files that no conversion has written."""
    try:
        record = json_value(read_limited(target / RECORD, _RECORD_LIMIT))
    except (OSError, Refused):
        record = None
    listed = record.get("files") if isinstance(record, dict) else None
    written = {name for name in listed if isinstance(name, str)} if isinstance(listed, list) else ()
    return sorted(names.difference(written))


def _prefix(target: Path) -> str:
    return f".{target.name}.partial-"


def _locked_directory(target: Path, mode: int) -> tuple[Path, int]:
    while True:
        name = f"{_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}"
        partial = target.with_name(name)
        partial.mkdir(mode)
        descriptor = os.open(partial, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if partial.exists():
            return partial, descriptor
        os.close(descriptor)  # another process removed it as abandoned before it was locked


def _remove_abandoned(target: Path) -> None:
    ours = re.compile(rf"{re.escape(_prefix(target))}\d+-[0-9a-f]{{8}}")
    for path in filter(lambda path: ours.fullmatch(path.name), target.parent.iterdir()):
        with suppress(OSError):  # in use, or removed by another process at this moment
            # Only directories are ours: a link may lead elsewhere, and opening a pipe would block.
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if (path / _REPLACED).is_dir() and not target.exists():
                    (path / _REPLACED).rename(target)  # its process died between two renames
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _move(partial: Path, target: Path, *, overwrite: bool) -> None:
    old = partial / _REPLACED
    if overwrite and target.exists():
        check_target(target, overwrite=True)  # the work may have taken hours
        target.rename(old)

    try:
        partial.rename(target)
    except OSError as error:
        if old.exists():
            old.rename(target)
        raise ConversionError(f"Cannot write {target}: {error.strerror}.") from error

    sync(target.parent)
    with suppress(FileNotFoundError):  # move it out of the model at once: deleting it takes longer
        (target / _REPLACED).rename(partial)
