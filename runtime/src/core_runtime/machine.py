"""Resources of the machine for this process: its cores, the free ones, and its memory."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_WINDOW = 0.1  # seconds between two samples: idle time is counted in hundredths
_MOMENT = 0.01  # the same until the first window is over
_STALE = 1.0  # seconds after which a sample is too old
_TAKEN = 0.8  # missing share of a core, threads that waited included, to give one up
_FREE = 0.6  # idle share of a core to use one more
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # a second


def usable_cores(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Return the number of cores that this process may use, at least 1.

    More threads than that wait for one another in every layer.
    """
    allowed = allowed_cpus()
    cores = _physical(proc / "cpuinfo", allowed) or len(allowed)
    return max(1, min(cores, _quota(cgroups / "cpu.max", cores)))


def allowed_cpus() -> AbstractSet[int]:
    """Return the CPUs that this process may run on, by number."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _physical(cpuinfo: Path, allowed: AbstractSet[int]) -> int:
    """Return the number of distinct cores of the allowed CPUs; 0 if it is not reported."""
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
    """Return the CPU time per period as whole CPUs, rounded up; ``most`` without a limit."""
    try:
        quota, period = path.read_text().split()
    except (OSError, ValueError):
        return most
    return -(-int(quota) // int(period)) if quota.isdigit() and period.isdigit() else most


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """Kernel counts until ``at``, in seconds of processors and threads."""

    at: float
    own: float  # processor time of this process
    idle: float  # idle time of the processors that it may use
    waited: dict[str, float]  # time that each of its threads was ready without a core


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel's counters. Raises OSError, ValueError or LookupError if they cannot be read."""

    proc: Path = _PROC

    def counts(self) -> KernelCounts:
        """Return the current counts."""
        lines = (self.proc / "stat").read_text().splitlines()
        times = {name: rest.split() for name, _, rest in (line.partition(" ") for line in lines)}
        mine = [times[f"cpu{cpu}"] for cpu in allowed_cpus()]
        idle = sum(int(line[3]) + int(line[4]) for line in mine) / _TICKS  # iowait is idle, too
        return KernelCounts(time.monotonic(), time.process_time(), idle, self._waited())

    def running(self) -> int:
        """Return the number of running and ready threads of the machine, including this one."""
        return int((self.proc / "loadavg").read_text().split()[3].partition("/")[0])

    def _waited(self) -> dict[str, float]:
        tasks = f"{self.proc}/self/task"
        waited = {}
        for task in os.listdir(tasks):
            with (
                suppress(FileNotFoundError),  # it has ended
                open(f"{tasks}/{task}/schedstat", "rb", buffering=0) as file,
            ):
                waited[task] = int(file.read(100).split()[1]) / 1e9
        return waited


@dataclass(slots=True)
class FreeCores:
    """The number of free cores, from 1 to ``most``, sampled a few times a second."""

    most: int
    kernel: Kernel = field(default_factory=Kernel)
    number: int = field(init=False)
    _last: KernelCounts | None = field(default=None, init=False)
    _next: float = field(default=-math.inf, init=False)

    def __post_init__(self) -> None:
        self.number = self.most

    def look(self) -> int:
        """Return the number of cores that are free now."""
        if self.most > 1 and time.monotonic() >= self._next:
            try:
                self._look()
            except (OSError, ValueError, LookupError):  # unknown here, and not tried again
                self.number, self._next = self.most, math.inf
        return self.number

    def _look(self) -> None:
        last, now = self._last, time.monotonic()
        if last is None or now - last.at > _STALE:
            self._last, self.number = self.kernel.counts(), self._at_once()
            self._next = now + _MOMENT
        elif now - last.at < _WINDOW:
            self.number = max(self.number, self._at_once())  # computing threads run at every sample
            self._next = now + _MOMENT
        else:
            self._last = self.kernel.counts()
            self.number, self._next = self._since(last, self._last), now + _WINDOW

    def _at_once(self) -> int:
        """Return the number, estimated from the threads that run at this moment."""
        return self._bounded((os.cpu_count() or 1) - (self.kernel.running() - 1))

    def _since(self, last: KernelCounts, now: KernelCounts) -> int:
        """Return the number, estimated from the counts between two samples.

        It grows if cores were idle, and shrinks if other processes used this one's cores or its
        threads waited. Waiting includes this process's other work beside its matrix products.
        """
        seconds = now.at - last.at
        own, idle = (now.own - last.own) / seconds, (now.idle - last.idle) / seconds
        waits = [waited - last.waited.get(task, 0.0) for task, waited in now.waited.items()]
        waited = sum(waits) / seconds
        if idle >= _FREE:
            return self._bounded(self.number + int(idle + 1 - _FREE))
        if max(0.0, self.number - own - idle) + waited > _TAKEN:
            return self._bounded(min(self.number - 1, int(own + idle - waited + 1 - _FREE)))
        return self.number

    def _bounded(self, number: int) -> int:
        return max(1, min(self.most, number))


def available_bytes(proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int | None:
    """Return the bytes that this process may still allocate: the smallest limit, None without any.

    Pages of files count as available: weights are mapped, and read again when needed.
    """
    limits = [*_machine(proc), *_groups(proc, cgroups)]
    return max(0, min(limits)) if limits else None


def physical_bytes() -> int | None:
    """Return the machine's memory in bytes, free or not; None if the system does not report it."""
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
    """Yield the bytes left in each cgroup, from this process's own up to the root."""
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
    """Yield the folder of a cgroup and those above it.

    In a container the path may be the host's, which does not exist there: then only the root
    counts.
    """
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for length in range(len(parts), -1, -1):
        yield root.joinpath(*parts[:length])


def _left(folder: Path, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    most, used = _number(folder / limit), _number(folder / usage)
    if most is not None and used is not None:
        yield most - used + _fields(folder / "memory.stat").get(reclaimable, 0)


def _fields(path: Path) -> dict[str, int]:
    """Return the numbers of a file whose lines are a name and a number, with or without a colon."""
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
