"""One process that renders chat templates.

The caller polls its check every few milliseconds while it waits for an answer. The two communicate
through a socket, because a pipe whose reader has died would end a program with the default SIGPIPE.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from importlib.util import find_spec
from typing import TypeVar

from core.errors import ChatTemplateError
from core.kit.base import Check
from core.system.child_process import Child, above_standard
from core_runtime.chat.frames import ASKED, FAILED, HEAD, NO_MEMORY, PROMPT, READY, decoded, framed

T = TypeVar("T")

_TICK_SECONDS = 0.02  # between two polls of the check
_SILENCE_SECONDS = 120.0  # it never waits itself, but the machine may be busy
_END_SECONDS = 5.0  # from its last message to its end
_CHUNK = 2**20
_MAX_ANSWER_BYTES = 2**26  # a prompt is limited in characters
_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
_SO_NOSIGPIPE = 0x1022  # the same on macOS; Python has no name for it
_FOR_THE_LINKER = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH")
_BOOT = "import sys; sys.path += sys.argv[1:]; from core_runtime.chat.worker import main; main()"
_NONSENSE = "spoke nonsense"
_NOT_STARTED = (
    "The process that renders chat templates cannot be started: {}. A program that is no Python "
    "interpreter itself names one with multiprocessing.set_executable()."
)


class ProcessEnded(Exception):
    """The error of a process that has ended or is unusable; the message has the reason."""


class ProcessTooSlow(Exception):
    """The error of a process that exceeded its CPU time."""


class TemplateProcess:
    """One process that renders. Not safe to use from two threads. It ends with this object.

    ``answered``: True once it has answered. Create it within `core.system.child_process.started`.
    Raises `ChatTemplateError` if it cannot be started.
    """

    def __init__(self) -> None:
        self.answered = self._ready = False
        with _starting:
            self._socket, popen = _start()
            self._child = Child(popen, self._socket)
            self.pid, self.end = self._child.pid, self._child.end
            _processes.add(self)

    def ask(self, request: bytes, check: Check) -> tuple[bytes, str]:
        """Send a request and return the kind and the text of the answer.

        Raises `ProcessEnded`, `ProcessTooSlow`, and like ``check``; the process is then unusable.
        """
        if not self._ready:
            self._receive(check)
            self._ready = True

        self._send(framed(ASKED, request), check)
        kind, text = self._receive(check)
        self.answered = True
        try:
            return kind, decoded(text)
        except UnicodeDecodeError:
            raise ProcessEnded(_NONSENSE) from None

    def _send(self, data: bytes, check: Check) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._moved(lambda: self._socket.send(rest, _NO_SIGNAL), check) :]  # noqa: B023

    def _receive(self, check: Check) -> tuple[bytes, bytes]:
        head = self._read(HEAD, check)
        kind, size = head[:1], int.from_bytes(head[1:], "big")
        if kind not in (READY, PROMPT, FAILED, NO_MEMORY) or size > _MAX_ANSWER_BYTES:
            raise ProcessEnded(_NONSENSE)
        return kind, self._read(size, check)

    def _read(self, size: int, check: Check) -> bytes:
        data = bytearray()
        while len(data) < size:
            missing = min(size - len(data), _CHUNK)
            part = self._moved(lambda: self._socket.recv(missing), check)  # noqa: B023
            if not part:
                raise self._ended()
            data += part
        return bytes(data)

    def _moved(self, move: Callable[[], T], check: Check) -> T:
        """Return the result of ``move``, a send or a receive, polling ``check``.

        The limit counts ticks, not time: a sleeping machine is not a silent process.
        """
        for _ in range(int(_SILENCE_SECONDS / _TICK_SECONDS)):
            check()
            try:
                return move()
            except TimeoutError:
                continue
            except OSError:
                raise self._ended() from None
        raise ProcessEnded(f"did not answer for {_SILENCE_SECONDS:g} s")

    def _ended(self) -> Exception:
        status = self._child.wait(_END_SECONDS)  # its socket closes a moment before it ends
        if status == -signal.SIGPROF:
            return ProcessTooSlow()
        if not self._ready:
            return ChatTemplateError(
                _NOT_STARTED.format(f"{self._child.popen.args!r} {_fate(status)}")
            )
        return ProcessEnded(_fate(status))


def _start() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start a process; return our end of the socket, and the process.

    The other end is its stdin; it inherits nothing else.
    """
    if sys.platform == "win32":
        raise ChatTemplateError("Chat templates need a Unix system: a process with limits.")

    command = [_interpreter(), "-I", "-S", "-c", _BOOT, *_folders()]
    with ExitStack() as undo:
        try:
            ours, its = map(undo.enter_context, map(_above_standard, socket.socketpair()))
            its.settimeout(None)  # a default timeout would make it non-blocking
            ours.settimeout(_TICK_SECONDS)
            if sys.platform == "darwin":
                ours.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)

            popen = subprocess.Popen(
                command,
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in _FOR_THE_LINKER if name in os.environ},
                start_new_session=True,  # Ctrl-C in the terminal concerns only the caller
            )
        except OSError as error:
            raise ChatTemplateError(_NOT_STARTED.format(error)) from error

        undo.pop_all()  # ours stays open
        its.close()
    return ours, popen


def _interpreter() -> str:
    """Return the interpreter that multiprocessing would start if it is in use, else this one."""
    spawn = sys.modules.get("multiprocessing.spawn")
    name = os.fsdecode((spawn.get_executable() if spawn else sys.executable) or "")
    if not name:
        raise ChatTemplateError(_NOT_STARTED.format("sys.executable is empty"))
    if getattr(sys, "frozen", False) and name == sys.executable:  # it would start itself
        raise ChatTemplateError(_NOT_STARTED.format(f"{name!r} is a frozen program"))
    return name


def _folders() -> list[str]:
    """Return the folders of the process's imports, after the standard library's."""
    origins = []
    for name in ("core_runtime", "jinja2", "markupsafe"):
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ChatTemplateError(f"Chat templates need {name}, which is not installed.")
        origins.append(spec.origin)
    folders = (os.path.dirname(os.path.dirname(os.path.abspath(file))) for file in origins)
    return list(dict.fromkeys(folders))


def _above_standard(end: socket.socket) -> socket.socket:
    """Return the socket with a descriptor above stdin, stdout and stderr."""
    if end.fileno() > 2:
        return end
    return socket.socket(fileno=above_standard(end.detach()))


def _fate(status: int | None) -> str:
    if status is None:
        return "closed its socket"
    if status >= 0:
        return f"exited with status {status}"
    return f"was ended by signal {-status} ({signal.strsignal(-status) or 'unknown'})"


_processes: weakref.WeakSet[TemplateProcess] = weakref.WeakSet()
_starting = threading.RLock()  # not during a fork, whose copy of the socket would stay open


def _in_fork() -> None:
    for process in list(_processes):
        process.end()
    _starting.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_in_fork
    )
