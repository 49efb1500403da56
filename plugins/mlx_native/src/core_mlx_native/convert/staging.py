"""A directory that appears complete or not at all.

Work happens in ``.NAME.partial-PID-…`` beside the target, which is renamed at the end. The
process holds a lock on it; a partial directory without a lock is left over and is removed. Files
are written in plain formats, and forced to disk before they are shown. A model is replaced only
where it holds nothing but the files that its record names.
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

RECORD = "conversion.json"
"""The file that names the source and options of a converted directory, and marks it as one."""
_REPLACED = "replaced"


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write an object as indented JSON in UTF-8."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, with its line ends as they are."""
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


@contextmanager
def staged(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a directory to fill, which becomes ``target`` if the block ends well.

    Otherwise it is removed. Raises `ConversionError` when the target is in use.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target)
    check_target(target, overwrite=overwrite)

    # The lock tells other processes that this directory is not left over.
    partial, lock = _locked_directory(target)
    try:
        yield partial
        _note_files(partial)
        sync_tree(partial)
        _move(partial, target, overwrite=overwrite)
    finally:
        shutil.rmtree(partial, ignore_errors=True)  # what failed, or what was replaced
        os.close(lock)


def _note_files(directory: Path) -> None:
    """Add to the record the names of all files, by which a later run knows them as its own."""
    file = directory / RECORD
    record = json.loads(file.read_bytes()) if file.exists() else {}
    write_json(file, {**record, "files": sorted(_files(directory) | {RECORD})})


def _files(directory: Path) -> set[str]:
    """Return the paths, from the directory, of all files and folders in it."""
    return {path.relative_to(directory).as_posix() for path in directory.rglob("*")}


def check_target(target: Path, *, overwrite: bool) -> None:
    """Refuse a target that exists and is not empty, unless it is a model to be overwritten.

    Of a model, all files have to be those that its conversion has written.
    """
    if not target.exists():
        return
    if not target.is_dir():
        raise ConversionError(f"{target} is a file. Name a directory to write the model to.")

    # A model that a conversion made may be replaced, and nothing else.
    names = _files(target)
    if names and not overwrite:
        raise ConversionError(
            f"{target} is not empty. Name another directory, or replace the model that is in it "
            "(--overwrite, overwrite=True)."
        )
    if names and (foreign := _foreign(target, names)):
        raise ConversionError(
            f"{target} is not overwritten: no conversion has written {foreign[0]} in it. Name "
            "another directory, or move that away."
        )
    if overwrite and target in (here := Path.cwd(), *here.parents):
        raise ConversionError(f"{target} is the directory that you are in. Change to another.")


def _foreign(target: Path, names: set[str]) -> list[str]:
    """Return the names of files that no conversion has written, the first ones first."""
    try:
        written = set(json.loads((target / RECORD).read_bytes())["files"])
    except (OSError, ValueError, KeyError, TypeError):
        written = set()
    return sorted(names - written)


def _prefix(target: Path) -> str:
    return f".{target.name}.partial-"


def _locked_directory(target: Path) -> tuple[Path, int]:
    while True:
        name = f"{_prefix(target)}{os.getpid()}-{secrets.token_hex(4)}"
        partial = target.with_name(name)
        partial.mkdir()
        descriptor = os.open(partial, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if partial.exists():
            return partial, descriptor
        os.close(descriptor)  # another process took it for abandoned before it was locked


def _remove_abandoned(target: Path) -> None:
    ours = re.compile(rf"{re.escape(_prefix(target))}\d+-[0-9a-f]{{8}}")
    for path in filter(lambda path: ours.fullmatch(path.name), target.parent.iterdir()):
        with suppress(OSError):  # in use, or removed by another process at this moment
            # Nothing else of that name is ours: a link would lead elsewhere, a pipe would wait.
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
        raise ConversionError(f"{target} could not be written: {error.strerror}.") from error

    sync(target.parent)
    with suppress(FileNotFoundError):  # out of the model at once: deleting it takes longer
        (target / _REPLACED).rename(partial)
