"""Small text files that are there as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import threading


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file as UTF-8; a reader sees the one before or this one, at any moment.

    Raises OSError where the directory cannot be written to; what was there then stays.
    """
    location = os.path.realpath(os.fspath(path))  # of a link, the file behind it
    directory, name = os.path.split(location)
    draft = os.path.join(directory, f".{name}.{os.getpid()}-{threading.get_ident()}")
    file = open(draft, "x", encoding="utf-8", newline="\n")  # noqa: SIM115 - never another's draft
    try:
        with file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):  # a file that is replaced hands its permissions on
            os.chmod(draft, os.stat(location).st_mode & 0o777)
        os.replace(draft, location)
    except BaseException:
        os.unlink(draft)
        raise
