"""Safe writing: files of other programs are never changed, and no other user changes ours.

An existing file is replaced only if its content shows that this program wrote it (`Kind`), and
atomically: a reader always sees either the old file or the new one. Files with prompts, answers or
data learned from them are created for their owner only. An output that grows in place (`opened`) is
neither a link nor a file with a second name, which would be another file of the user's. A path of
an open descriptor, such as /dev/stdout, is written to and never replaced. Code that will be run is
cached in a `private_folder`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from core.errors import OutputError
from core.system import terminal

Place = str | os.PathLike[str]
_ClickType = TypeVar("_ClickType")

NAMES_OUTPUT = "names_output"
_HEAD = 1 << 16  # bytes that identify the kind of a file
_DESCRIPTOR = re.compile(r"(?:/dev|/proc/(self|thread-self|\d+))/fd/(\d+)")
_LINKS = 40  # as many as Linux follows


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of output: its ``name`` for errors, and the ``start`` of its files.

    Files of a kind that is ``private`` are created with mode 0600, others as the umask says.
    """

    name: str
    start: re.Pattern[bytes]
    private: bool = True

    def wrote(self, file: Place) -> bool:
        """Return whether the content of a regular file is of this kind, or empty."""
        try:
            with open(file, "rb") as stream:
                head = stream.read(_HEAD)
        except PermissionError:
            return False
        return not head or self.start.match(head) is not None


def output_type(kind: _ClickType) -> _ClickType:
    """Mark a click type as one for parameters that name an output of a command."""
    setattr(kind, NAMES_OUTPUT, True)
    return kind


def check(path: Place, kind: Kind, *, overwrite: bool = True) -> Path:
    """Return the path of an output, with links resolved.

    Raises `OutputError` if a file of this kind must not be written there; without ``overwrite``,
    for every existing file that has content.
    """
    if is_stream(path):
        return Path(path)
    place = Path(os.path.realpath(path))
    if place.is_dir():
        raise OutputError(f"{path} is a folder. Pass the name of a file.")
    if not place.parent.is_dir():
        raise OutputError(
            f"{path} cannot be written: the folder {place.parent} does not exist. Create it, or "
            "choose another file."
        )
    there = os.path.lexists(place)
    if not all(os.access(part, os.W_OK) for part in (place.parent, *([place] if there else []))):
        raise OutputError(
            f"{path} cannot be written: it or its folder is not writable. Check the permissions, "
            "or choose another file."
        )
    if there:
        _check_content(path, place, kind, overwrite)
    return place


def _check_content(path: Place, place: Path, kind: Kind, overwrite: bool) -> None:
    if not kind.wrote(place):
        raise OutputError(
            f"{path} already exists and is not {kind.name} written by this program, so it is not "
            "replaced. Choose another file, or move this one away."
        )
    if not overwrite and os.path.getsize(place):
        raise OutputError(
            f"{path} exists. Replace it (--overwrite, overwrite=True), or choose another file."
        )


def write(path: Place, data: str | bytes, kind: Kind, *, overwrite: bool = True) -> None:
    """Write an output; a pipe or a device, /dev/stdout included, is written to directly.

    Raises like `check`, and OSError.
    """
    content = data.encode() if isinstance(data, str) else data
    if is_stream(path):
        _write_stream(path, content)
    else:
        with draft(path, kind, overwrite=overwrite) as partial:
            partial.write_bytes(content)


@contextlib.contextmanager
def draft(path: Place, kind: Kind, *, overwrite: bool = True) -> Iterator[Path]:
    """Yield an empty file to fill, which replaces the output if the block succeeds.

    Otherwise it is removed. Raises like `check`, and if the output is not a regular file.
    """
    place = check(path, kind, overwrite=overwrite)
    check_file(path)
    partial = place.with_name(f".core-{os.urandom(8).hex()}{place.suffix}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    os.close(os.open(partial, flags, 0o600 if kind.private else 0o666))
    try:
        yield partial
        _sync(partial)
        check(place, kind, overwrite=overwrite)  # the work may have taken hours
        with contextlib.suppress(FileNotFoundError):  # a replaced file hands its permissions on
            os.chmod(partial, stat.S_IMODE(os.stat(place).st_mode) & 0o777)
        os.replace(partial, place)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def check_file(path: Place) -> None:
    """Raise `OutputError` for a pipe, a device or an open descriptor, which cannot be replaced."""
    if is_stream(path):
        raise OutputError(f"{path} is not a regular file. Pass the name of one.")


def check_plain(path: Path) -> None:
    """Raise `OutputError` for a link, for anything but a regular file, and for a second name."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise OutputError(
            f"{path} is a link or not a regular file, so it is not written to. Move it away, or "
            "choose another output."
        )
    if status.st_nlink > 1:
        raise OutputError(
            f"{path} has {status.st_nlink} names (hard links), and would change under all of them. "
            "Copy it, or choose another output."
        )


def opened(path: Path, flags: int = 0) -> int:
    """Open a file that grows in place, created for its owner only, and return the descriptor.

    Raises like `check_plain`, and OSError if it cannot be opened.
    """
    check_plain(path)
    flags |= os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)  # which Windows lacks
    return os.open(path, flags, 0o600)


def remove(path: Path, kind: Kind) -> None:
    """Remove a file if this program wrote it; other files are kept."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISREG(os.lstat(path).st_mode) and kind.wrote(path):
            path.unlink()


def is_stream(path: Place) -> bool:
    """Return whether a path is a pipe, a device or a descriptor: never replaced, only written to.

    A descriptor is one even if it leads to a regular file, like /dev/stdout with ``> FILE``.
    """
    if _descriptor(path) is not None:
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _descriptor(path: Place) -> int | None:
    """Return the descriptor of this process that a path names, itself or through links."""
    name, own = os.path.abspath(path), (None, "self", "thread-self", str(os.getpid()))
    for _ in range(_LINKS):
        if (match := _DESCRIPTOR.fullmatch(name)) and match[1] in own:
            return int(match[2])
        if not os.path.islink(name):
            break
        name = os.path.normpath(os.path.join(os.path.dirname(name), os.readlink(name)))
    return None


def _write_stream(path: Place, content: bytes) -> None:
    number = _descriptor(path)
    if number == 1:
        terminal.write(content)  # a program may have moved it
        return
    with open(path if number is None else os.dup(number), "wb") as stream:
        stream.write(content)


def _sync(path: Path) -> None:
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


# --------------------------------------------------------------------------- private folders


def cache_root() -> Path:
    """Return ``$XDG_CACHE_HOME/core``, or ``~/.cache/core`` if that is unset or a relative path.

    Raises FileNotFoundError if the user has no home directory.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # its specification says that a relative path is to be ignored
        return Path(named) / "core"
    try:
        return Path.home() / ".cache" / "core"
    except RuntimeError:
        raise FileNotFoundError("This user has no home directory. Set XDG_CACHE_HOME.") from None


def private_folder(path: Path) -> Path:
    """Return a folder of mode 0700, created if missing, that is safe for code to be run.

    Raises PermissionError, with the next step, if another user could have put something there: it
    is a link, it belongs to another user, or other users may write to it or to a folder above it.
    Raises OSError if it cannot be created or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise PermissionError(f"{path} is a link, but must be a folder. Remove it.")

    # The way to the folder, and where links on it lead.
    own = (path, Path(os.path.realpath(path)))
    for place in dict.fromkeys(above for start in own for above in (start, *start.parents)):
        _check_owner(place, os.lstat(place), may_be_sticky=place not in own)

    path.chmod(0o700)
    if not os.access(path, os.W_OK | os.X_OK):  # a file system that is mounted read-only
        raise PermissionError(f"{path} is not writable. Set XDG_CACHE_HOME to a writable folder.")
    return path


def _check_owner(place: Path, status: os.stat_result, may_be_sticky: bool) -> None:
    """Raise PermissionError if other users may change a path or its contents.

    In a sticky folder, such as /tmp, they can add files but not change them.
    """
    if status.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            f"{place} belongs to another user (id {status.st_uid}), who could put code there. "
            "Set XDG_CACHE_HOME to a folder of your own."
        )

    if stat.S_ISLNK(status.st_mode):
        return  # a link has no permissions
    if _others_write(status) and not (may_be_sticky and status.st_mode & stat.S_ISVTX):
        raise PermissionError(
            f"Other users may write to {place}, and could put code there. Revoke their permission "
            f"(chmod go-w '{place}'), or set XDG_CACHE_HOME to another folder."
        )


def _others_write(status: os.stat_result) -> bool:
    shared = status.st_mode & stat.S_IWGRP and not _is_only_ours(status.st_gid)
    return bool(status.st_mode & stat.S_IWOTH or shared)


def _is_only_ours(group: int) -> bool:
    """Return whether a group has only this user.

    Ubuntu creates one for each user, with write permission by default.
    """
    import grp  # not on Windows, where this module can be imported all the same
    import pwd

    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        members = grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}
