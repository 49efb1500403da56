"""How many threads compute best here: cores, not hyperthreads, and no more than may be used."""

from __future__ import annotations

import os
from collections.abc import Set as AbstractSet
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """At least 1. More threads than that wait for one another at every layer."""
    allowed = _allowed()
    cores = _physical(proc / "cpuinfo", allowed) or len(allowed)
    return max(1, min(cores, _quota(cgroups / "cpu.max", cores)))


def _allowed() -> AbstractSet[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _physical(cpuinfo: Path, allowed: AbstractSet[int]) -> int:
    """Distinct cores behind the CPUs that this process may use; 0 where it is not said."""
    try:
        blocks = cpuinfo.read_text().split("\n\n")
    except OSError:
        return 0
    cores = set()
    for block in blocks:
        fields = dict(_pair(line) for line in block.splitlines() if ":" in line)
        if "core id" in fields and int(fields.get("processor", "-1")) in allowed:
            cores.add((fields.get("physical id", "0"), fields["core id"]))
    return len(cores)


def _pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _quota(path: Path, most: int) -> int:
    """CPU time per period as whole CPUs, rounded up; ``most`` where there is no limit."""
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return most
    return -(-int(quota) // int(period)) if quota.isdigit() and period.isdigit() else most
