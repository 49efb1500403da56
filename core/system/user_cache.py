"""The user's cache folder, and private folders in it for code that no other user can change."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path


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
        _check(place, os.lstat(place), may_be_sticky=place not in own)

    path.chmod(0o700)
    if not os.access(path, os.W_OK | os.X_OK):  # a file system that is mounted read-only
        raise PermissionError(f"{path} is not writable. Set XDG_CACHE_HOME to a writable folder.")
    return path


def _check(place: Path, status: os.stat_result, may_be_sticky: bool) -> None:
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
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
        members = grp.getgrgid(group)
    except KeyError:
        return False
    return members.gr_name == name and set(members.gr_mem) <= {name}
