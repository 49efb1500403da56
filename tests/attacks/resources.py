"""What a process holds, as Linux counts it: threads, descriptors, children, memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path

SELF = Path("/proc/self")


@dataclass(frozen=True, slots=True)
class Held:
    """Numbers of native threads, open descriptors and child processes, zombies included."""

    threads: int
    descriptors: int
    children: int

    def beyond(self, before: Held) -> list[str]:
        """What there is more of than before, in words."""
        pairs = [(f.name, getattr(before, f.name), getattr(self, f.name)) for f in fields(self)]
        return [f"{was} {name} became {now}" for name, was, now in pairs if now > was]


def held() -> Held:
    """What there is now."""
    threads = len(os.listdir(SELF / "task"))
    return Held(threads, len(os.listdir(SELF / "fd")), len(_children()))


def settled(before: Held, patience: float) -> Held:
    """What there is once all that ends by itself has ended, or after ``patience`` seconds."""
    end = time.monotonic() + patience
    while True:
        gc.collect()
        now = held()
        if not now.beyond(before) or time.monotonic() > end:
            return now
        time.sleep(0.01)


def names() -> str:
    """Threads that Python knows, children, and files that are open, to tell what was left."""
    files = []
    for number in os.listdir(SELF / "fd"):
        with contextlib.suppress(OSError):
            files.append(os.readlink(SELF / "fd" / number))
    children = []
    for child in _children():
        with contextlib.suppress(OSError):
            children.append(Path(f"/proc/{child}/stat").read_text().split(" ", 3)[1:3])
    threads = [thread.name for thread in threading.enumerate()]
    return f"threads of Python: {threads}; children: {children}; files: {files}"


def resident() -> int:
    """Bytes in memory, once the C library has given back what it can."""
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
    return _status("VmRSS")


def start_peak() -> None:
    """Measure `peak` anew from here."""
    with contextlib.suppress(OSError):  # not every container allows it: then peaks are too high
        (SELF / "clear_refs").write_text("5")


def peak() -> int:
    """The most bytes in memory since `start_peak`."""
    return _status("VmHWM")


def limit_addresses(more: int) -> None:
    """So many bytes of addresses beside today's: what asks for more has believed a lying size."""
    most = _status("VmSize") + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _children() -> list[str]:
    found = []
    for task in (SELF / "task").iterdir():
        with contextlib.suppress(OSError):  # a thread that has just ended
            found += (task / "children").read_text().split()
    return found


def _status(name: str) -> int:
    line = next(row for row in (SELF / "status").read_text().splitlines() if row.startswith(name))
    return int(line.split()[1]) * 1024
