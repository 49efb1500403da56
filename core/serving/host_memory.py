"""How much memory this process may still take: the machine's, and the limits of its cgroups.

Linux: ``MemAvailable`` of proc(5), and https://docs.kernel.org/admin-guide/cgroup-v2.html (v1's
names likewise). Elsewhere the machine's physical memory stands for what is free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def available_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """The least of all limits; None where the system tells none.

    Pages that hold files count as available: weights are mapped, and read again when needed.
    """
    limits = [*_machine(proc), *_groups(proc, cgroups)]
    return max(0, min(limits)) if limits else None


def physical_bytes() -> int | None:
    """What the machine has, free or not; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _machine(proc: Path) -> Iterator[int]:
    fields = _fields(proc / "meminfo")
    if "MemAvailable" in fields:
        yield fields["MemAvailable"] * 1024  # "kB" there are KiB
        return
    physical = physical_bytes()
    if physical is not None:
        yield physical


def _groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """What is left in each cgroup from this process's own up to the root."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if not controllers:
            names, root = ("memory.max", "memory.current", "inactive_file"), cgroups
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            root = cgroups / "memory"
        else:
            continue
        for folder in _upwards(root, path):
            yield from _left(folder, *names)


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """In a container the path may be the host's, which is not there: then the root alone."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:length])


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    most, used = _number(folder / limit), _number(folder / usage)
    if most is not None and used is not None:
        yield most - used + _fields(folder / "memory.stat").get(reclaimable, 0)


def _fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number, with or without a colon."""
    pairs = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and pair[1].isdigit()}


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None  # "max": no limit


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
