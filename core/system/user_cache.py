"""The user's cache folder, and folders below it that hold code: nobody else can write there."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


def cache_root() -> Path:
    """``$XDG_CACHE_HOME/core``; ``~/.cache/core`` where that is unset or no absolute path.

    Raises FileNotFoundError where the user has no home directory.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # another one is to be ignored, says its specification
        return Path(named) / "core"
    try:
        return Path.home() / ".cache" / "core"
    except RuntimeError:
        raise FileNotFoundError("This user has no home directory. Set XDG_CACHE_HOME.") from None


def private_folder(path: Path) -> Path:
    """A folder of mode 0700, made where it is missing, that is fit for code which will be run.

    Raises PermissionError, with what to do, where another user could have put something there:
    it is a link, it is another's, or somebody else may write to it or to a folder above it. Raises
    OSError where it cannot be made or written to.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    if path.is_symlink():
        raise PermissionError(f"{path} is a link, and has to be a folder. Remove it.")

    # The way to the folder, and where links on it lead.
    own = (path, Path(os.path.realpath(path)))
    for place in dict.fromkeys(above for each in own for above in (each, *each.parents)):
        _check(place, os.lstat(place), may_be_sticky=place not in own)

    path.chmod(0o700)
    if not os.access(path, os.W_OK | os.X_OK):  # a file system that is mounted read-only
        raise PermissionError(f"{path} cannot be written to.")
    return path


def _check(place: Path, found: os.stat_result, may_be_sticky: bool) -> None:
    """Raise PermissionError where others may change what is at a place, or what is in it.

    In a sticky folder, as /tmp is one, they can add and cannot change.
    """
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(
            f"{place} belongs to another user (id {found.st_uid}), who could put code there. "
            "Let XDG_CACHE_HOME name a folder of your own."
        )

    if stat.S_ISLNK(found.st_mode):
        return  # a link has no permissions of its own
    if _others_write(found) and not (may_be_sticky and found.st_mode & stat.S_ISVTX):
        raise PermissionError(
            f"Other users may write to {place}, and could put code there. Take that from them "
            f"(chmod go-w '{place}'), or let XDG_CACHE_HOME name another folder."
        )


def _others_write(found: os.stat_result) -> bool:
    shared = found.st_mode & stat.S_IWGRP and not _is_only_ours(found.st_gid)
    return bool(found.st_mode & stat.S_IWOTH or shared)


def _is_only_ours(group: int) -> bool:
    """Whether a group is this user's own: Ubuntu makes one for each, which may write by default."""
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        found = grp.getgrgid(group)
    except KeyError:
        return False
    return found.gr_name == name and set(found.gr_mem) <= {name}
