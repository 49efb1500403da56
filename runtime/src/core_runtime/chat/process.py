"""One process that renders chat templates: started, asked, and ended.

Whoever waits for its answer looks every few milliseconds whether the answer is still wanted. Its
descriptors are the two ends of one socket: a pipe's reader that has died would end a program that
leaves SIGPIPE at its default.
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
from core.kit.clock import Check
from core.system.child_process import Child, above_standard
from core_runtime.chat.frames import ASKED, FAILED, HEAD, NO_MEMORY, PROMPT, READY, decoded, framed

T = TypeVar("T")

_TICK_SECONDS = 0.02  # between two looks at whether the answer is still wanted
_SILENCE_SECONDS = 120.0  # nothing that it does waits; it may wait for the processor, or be stopped
_END_SECONDS = 5.0  # from its last word until it is gone
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
    """The process is gone, or of no use; the message says how."""


class ProcessTooSlow(Exception):
    """The process took more of the processor than it had been given."""


class TemplateProcess:
    """One process that renders. Not safe to use from two threads. It ends when it is dropped.

    ``answered``: whether it has been of use yet. Made within `core.system.child_process.started`.
    Raises `ChatTemplateError` where none can be started.
    """

    def __init__(self) -> None:
        self.answered = self._ready = False
        with _starting:
            self._socket, popen = _start()
            self._child = Child(popen, self._socket)
            self.pid, self.end = self._child.pid, self._child.end
            _processes.add(self)

    def ask(self, request: bytes, check: Check) -> tuple[bytes, str]:
        """Send a request; the kind and the text of the answer.

        Raises `ProcessEnded`, `ProcessTooSlow`, and what ``check`` raises. After any of these the
        process has to be ended.
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
        """Return what ``move`` has moved.

        Ticks are counted, for a machine that sleeps is not silent.
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
        status = self._child.wait(_END_SECONDS)  # its socket closes a moment before it is gone
        if status == -signal.SIGPROF:
            return ProcessTooSlow()
        if not self._ready:
            return ChatTemplateError(
                _NOT_STARTED.format(f"{self._child.popen.args!r} {_fate(status)}")
            )
        return ProcessEnded(_fate(status))


def _start() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Start one: our end of the socket that it has as its stdin, and the process.

    It inherits nothing else.
    """
    if sys.platform == "win32":
        raise ChatTemplateError("Chat templates need a Unix system: a process with limits.")

    command = [_interpreter(), "-I", "-S", "-c", _BOOT, *_folders()]
    with ExitStack() as undo:
        try:
            ours, its = map(undo.enter_context, map(_above_standard, socket.socketpair()))
            its.settimeout(None)  # a default timeout would make it one that does not wait
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
                start_new_session=True,  # Ctrl-C in the caller's terminal is the caller's alone
            )
        except OSError as error:
            raise ChatTemplateError(_NOT_STARTED.format(error)) from error

        undo.pop_all()  # ours stays open
        its.close()
    return ours, popen


def _interpreter() -> str:
    """Return the interpreter that multiprocessing would start, where that is in use.

    Else this one.
    """
    spawn = sys.modules.get("multiprocessing.spawn")
    name = os.fsdecode((spawn.get_executable() if spawn else sys.executable) or "")
    if not name:
        raise ChatTemplateError(_NOT_STARTED.format("sys.executable is empty"))
    if getattr(sys, "frozen", False) and name == sys.executable:  # it would start all over
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
    """Return the socket with a descriptor that nobody takes for stdin, stdout or stderr."""
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
_starting = threading.RLock()  # not during a fork, whose copy of the socket nobody would close


def _in_fork() -> None:
    for process in list(_processes):
        process.end()
    _starting.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_in_fork
    )
