"""The process that renders chat templates, with little memory and no access to anything else.

`core_runtime.chat.process` starts it and communicates through descriptor 0
(`core_runtime.chat.frames`). Templates are untrusted: this process limits itself before it reads
its first request, and is killed from outside if the caller stops waiting.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from datetime import datetime

from core_runtime.chat.frames import (
    FAILED,
    HEAD,
    MAX_MEMORY_BYTES,
    NO_MEMORY,
    PROMPT,
    READY,
    encoded,
    framed,
)

_MAX_FILES = 16
_CHUNK = 2**20


def main() -> None:
    """Answer requests until the socket closes."""
    from core_runtime.chat.sandbox import TemplateFailed, compiled, names_read, rendered

    def answer(request: bytes) -> bytes:
        job = json.loads(request)

        # CPU time, however busy the machine is. By default the signal ends the process.
        signal.setitimer(signal.ITIMER_PROF, job["seconds"])

        try:
            text = ""
            template = compiled(job["source"])
            if job["names"]:
                text = json.dumps(names_read(job["source"]))
            elif job["messages"] is not None:
                now = datetime.fromisoformat(job["now"])
                what = job["messages"], job["variables"], now, job["asks"]
                text = rendered(template, *what)
        except TemplateFailed as failure:
            return framed(FAILED, encoded(str(failure)))
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

        return framed(PROMPT, encoded(text))

    _confine()
    _write(framed(READY))
    try:
        while (request := _request()) is not None:
            _write(answer(request))
    except MemoryError:
        _write(framed(NO_MEMORY))  # and end: the memory left may be too little for the next one


def _confine() -> None:
    """Give up the resources that a template does not need: memory, files, processes, core dumps."""
    sys.dont_write_bytecode = True
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_NPROC, 0)
    _limit(resource.RLIMIT_NOFILE, _MAX_FILES)
    used = _address_space()
    if used is not None:
        _limit(resource.RLIMIT_AS, used + MAX_MEMORY_BYTES)


def _limit(what: int, amount: int) -> None:
    hard = resource.getrlimit(what)[1]
    amount = amount if hard == resource.RLIM_INFINITY else min(amount, hard)
    resource.setrlimit(what, (amount, amount))


def _address_space() -> int | None:
    """Return the address space in use, in bytes; None except on Linux (macOS ignores limits)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return None


def _request() -> bytes | None:
    head = _read(HEAD)
    return None if head is None else _read(int.from_bytes(head[1:], "big"))


def _read(size: int) -> bytes | None:
    read = bytearray()
    while len(read) < size:
        part = os.read(0, min(size - len(read), _CHUNK))
        if not part:
            return None
        read += part
    return bytes(read)


def _write(data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(0, rest) :]
