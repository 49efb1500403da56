"""The folders of a job, on any file system; only files that a job wrote are ever removed.

OUT has ``_job.json`` and the files that Ray's ``write_parquet`` names by the job's write and task;
``OUT.checkpoint`` has a file of ids for each, with the same name.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import click
import pyarrow
import pyarrow.fs

from core.system.limited_files import NewerFormat, Refused, check_format, json_value

FORMAT = 1
NOTE = "_job.json"
_TASK = r"(?:\w+_)?[0-9a-f]{32}_\d{6}"  # of a data set, a write and a task
_ANSWERS = re.compile(rf"{_TASK}(?:-\d+)?\.parquet|{NOTE}(?:\.new)?")
_IDS = re.compile(rf"{_TASK}(?:\.pending)?\.parquet")


def check(files: Any, folder: str, *, overwrite: bool) -> Mapping[str, Any] | None:
    """Return the note of the job in OUT; None if no job was started there.

    Raises `click.UsageError` for an OUT that is not a job's; with ``overwrite``, for any file in
    it that a job did not write.
    """
    places = {folder: _ANSWERS, checkpoint_of(folder): _IDS}
    for place in places:
        if files.get_file_info(place).type == pyarrow.fs.FileType.File:
            raise click.UsageError(f"{place} is a file. Choose another OUT.")
    noted = _note_in(files, folder)
    for place, known in places.items():
        names = _names(files, place)
        if names and noted is None:
            raise click.UsageError(f"{place} is not the output of a job. Choose another OUT.")
        foreign = [name for name in names if not known.fullmatch(name)]
        if overwrite and foreign:
            raise click.UsageError(
                f"{place} contains {foreign[0]}, which was not written by a job. Move it away, or "
                "choose another OUT."
            )
    return noted


def listing(source: str) -> list[tuple[str, int, int]]:
    """Return the name, bytes and modification time (ns) of each input file, which identify it.

    Empty for an address of a kind that pyarrow does not know. Raises `click.UsageError` if the
    input does not exist or cannot be listed.
    """
    try:
        files, place = pyarrow.fs.FileSystem.from_uri(source)
        whole = files.get_file_info(place)
    except pyarrow.ArrowInvalid:  # Ray may read it by fsspec: the address has to identify it
        return []
    except OSError as error:
        raise click.UsageError(f"Cannot list {source}: {error}. Check the address.") from None
    if whole.type == pyarrow.fs.FileType.NotFound:
        raise click.UsageError(f"{source} does not exist. Pass the file or folder of the input.")
    inside = whole.type == pyarrow.fs.FileType.Directory
    selector = pyarrow.fs.FileSelector(place, recursive=True)
    entries = files.get_file_info(selector) if inside else [whole]
    return sorted(
        (info.path.removeprefix(place), info.size, info.mtime_ns)
        for info in entries
        if info.type == pyarrow.fs.FileType.File
    )


def refuse_inside(out: str, source: str) -> None:
    """Raise `click.UsageError` if OUT and the input, both addresses, are equal or nested.

    Answers inside the input would change the input, so that no job could be resumed.
    """
    place, inside = (_resolved(address).rstrip("/") for address in (out, source))
    for folder in (place, checkpoint_of(place)):
        if f"{inside}/".startswith(f"{folder}/"):
            raise click.UsageError(f"{out} contains the input, {source}. Choose another OUT.")
    if f"{place}/".startswith(f"{inside}/"):
        raise click.UsageError(f"{out} is inside the input, {source}. Choose another OUT.")


def _resolved(address: str) -> str:
    path = address.removeprefix("file://")
    return address if "://" in path else os.path.realpath(path)


def checkpoint_of(folder: str) -> str:
    """Return the folder in which Ray records the finished rows."""
    return f"{folder}.checkpoint"


def clear(files: Any, folder: str) -> None:
    """Remove the files of a job from OUT and its checkpoint, and nothing else."""
    _remove(files, folder, _ANSWERS)
    clear_checkpoint(files, folder)


def clear_checkpoint(files: Any, folder: str) -> None:
    """Remove a job's checkpoint, and its folder if that is then empty."""
    place = checkpoint_of(folder)
    if files.get_file_info(place).type != pyarrow.fs.FileType.Directory:
        return
    _remove(files, place, _IDS)
    if _names(files, place):
        return
    if isinstance(files, pyarrow.fs.LocalFileSystem):
        os.rmdir(place)
    else:  # in object stores an empty folder is only a marker object
        files.delete_dir(place)


def note(files: Any, folder: str, job: str, *, finished: bool) -> None:
    """Write the note of OUT's job, atomically."""
    for place in (folder, checkpoint_of(folder)):
        _make(files, place)
    with files.open_output_stream(f"{folder}/{NOTE}.new") as stream:
        stream.write(json.dumps({"format": FORMAT, "job": job, "finished": finished}).encode())
    files.move(f"{folder}/{NOTE}.new", f"{folder}/{NOTE}")


def _make(files: Any, folder: str) -> None:
    """Make a folder; on the local file system only for its owner, because of the files' content."""
    if isinstance(files, pyarrow.fs.LocalFileSystem):
        os.makedirs(folder, 0o700, exist_ok=True)
    else:
        files.create_dir(folder)


def _note_in(files: Any, folder: str) -> Mapping[str, Any] | None:
    place = f"{folder}/{NOTE}"
    kind = files.get_file_info(place).type
    if kind == pyarrow.fs.FileType.NotFound:
        return None
    try:
        if kind != pyarrow.fs.FileType.File:  # a pipe would be waited for
            raise Refused("it is not a regular file")
        with files.open_input_stream(place) as stream:
            record = json_value(stream.read(1 << 16))
        if not isinstance(record, dict) or not isinstance(record.get("job"), str):
            raise Refused("it names no job")
        check_format(record.get("format"), FORMAT)
        if not isinstance(record.get("finished"), bool):
            raise Refused("it does not tell whether the job is finished")
    except NewerFormat as newer:
        raise click.UsageError(f"{place} has {newer}. Use a newer infercore-ray.") from None
    except (OSError, Refused) as error:
        raise click.UsageError(
            f"{place} is not the note of a job: {error}. Give another OUT."
        ) from None
    return record


def _names(files: Any, folder: str) -> list[str]:
    """Return the names of all files in a folder; deeper ones with their paths."""
    selector = pyarrow.fs.FileSelector(folder, allow_not_found=True, recursive=True)
    inside = [entry.path[len(folder) :].lstrip("/") for entry in files.get_file_info(selector)]
    return sorted(filter(None, inside))


def _remove(files: Any, folder: str, known: re.Pattern[str]) -> None:
    for name in _names(files, folder):
        if known.fullmatch(name):
            files.delete_file(f"{folder}/{name}")
