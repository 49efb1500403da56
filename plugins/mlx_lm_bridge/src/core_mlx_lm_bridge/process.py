"""A worker process and its pipes: started, written to, read from, and ended.

The protocol has two separate pipes, whose numbers are the worker's last arguments. Descriptors 1
and 2 of the worker are a third pipe from the start: text that anything in the worker prints,
Python's start-up included, goes into its errors and never into the protocol. Only this module and
``worker.py`` know how the pipes are passed (``pass_fds``, which Windows lacks).

It uses no threads: a call that waits for a line also reads the worker's stderr, so that the worker
never blocks on it. Between calls a worker may block, which costs nothing.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import FileIO

from core.system.child_process import Child, pipe
from core_mlx_lm_bridge.protocol import MAX_ANSWER_BYTES, LineSplitter, ProtocolError

_CHUNK = 2**16
_TAIL_BYTES = 8192
_TAIL_LINES = 20
_PATIENCE_SECONDS = 2.0  # after asking it to quit, and again after terminating it
_LAST_WORDS_SECONDS = 0.5  # once it is dead: a child of its own may hold stderr open


class WorkerProcess:
    """A running worker. Not safe to use from two threads at once. Ends when garbage-collected.

    Made within `core.system.child_process.started`. Raises OSError if the interpreter cannot be
    run. It is in a separate session, so that Ctrl-C in the terminal interrupts only the caller.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        process, pipes = _started(command, {**os.environ, **environment})
        self._child = Child(process, *pipes)
        self.pid = self._child.pid
        self._requests, self._answers, self._printed = map(_unblocked, pipes)

        # Lines that were read and not handed out, bytes to be written, and the last printed text.
        self._lines = LineSplitter(MAX_ANSWER_BYTES)
        self._read: deque[bytes] = deque()
        self._unsent = memoryview(b"")
        self._tail = b""
        self._left = False
        self._users = 0  # calls that use the pipes: two, where a signal handler makes the second
        self._killed = False

        self._open = {self._answers, self._printed}
        self._poll = select.poll()
        for descriptor in self._open:
            self._poll.register(descriptor, select.POLLIN)

    @property
    def ended(self) -> bool:
        """True when no more lines will come: the pipe ended, or was empty at the exit."""
        return not self._read and (self._answers not in self._open or self._left)

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return self._child.status is None

    def send(self, line: bytes) -> None:
        """Write a line now or, if the pipe is full, while `line` waits for an answer."""
        with self._used():
            self._unsent = memoryview(bytes(self._unsent) + line)
            self._write()

    def line(self, seconds: float) -> bytes | None:
        """Return the next line; None if none came within ``seconds``.

        Raises `ProtocolError` if it is too long.
        """
        if not self._read:
            exited = not self.alive  # before the look: it may write, exit, and be read afterwards
            with self._used():
                self._wait(seconds)
            self._left = exited and not self._read
        return self._read.popleft() if self._read else None

    def stderr_tail(self) -> str:
        """Return the last lines that it wrote to stderr or stdout, which are the same pipe."""
        lines = self._tail.decode(errors="replace").splitlines()
        return "\n".join(lines[-_TAIL_LINES:])

    def fate(self) -> str:
        """Return the end of the process, in words."""
        status = self._child.wait(_LAST_WORDS_SECONDS)  # its pipes close a moment before it is gone
        if status is None:
            return "closed its end of the protocol"
        if status >= 0:
            return f"exited with status {status}"
        name = _signal_name(-status)
        return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")

    def kill(self) -> None:
        """Kill it at once, keep its last output, and leave neither a zombie nor a descriptor."""
        if self._killed:
            return
        self._child.kill()
        self._killed = True
        if not self._users:
            self._drain(_LAST_WORDS_SECONDS, lambda: self._printed not in self._open)
            self._child.end()

    def quit(self, farewell: bytes) -> None:
        """Ask it to exit; if it does not, terminate, then kill it.

        In a signal handler that interrupted a waiting call, it is killed: the interrupted call
        uses the pipes, and they are closed when it ends.
        """
        if self._users:
            self.kill()
            return
        self.send(farewell)
        if not self._exits():
            with suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)
            self._exits()
        self.kill()

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Keep the pipes open in the block."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._killed and not self._users:
                self._child.end()

    def _exits(self) -> bool:
        self._drain(_PATIENCE_SECONDS, lambda: not self.alive)
        return not self.alive

    def _drain(self, seconds: float, enough: Callable[[], bool]) -> None:
        """Read its remaining output for a while, because it may block on that."""
        end = time.monotonic() + seconds
        while not enough() and time.monotonic() < end:
            with suppress(ProtocolError):
                self._wait(0.02)

    def _wait(self, seconds: float) -> None:
        for descriptor, _ in self._poll.poll(int(seconds * 1000)):
            if descriptor == self._requests:
                self._write()
                continue
            data = os.read(descriptor, _CHUNK)
            if not data:
                self._poll.unregister(descriptor)
                self._open.discard(descriptor)
            elif descriptor == self._printed:
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
            else:
                self._read.extend(self._lines.feed(data))

    def _write(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._requests, self._unsent) :]
        except BlockingIOError:
            self._poll.register(self._requests, select.POLLOUT)
            return
        except BrokenPipeError:  # it has died, as the end of its answers will show
            self._unsent = memoryview(b"")
        with suppress(KeyError):
            self._poll.unregister(self._requests)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most real-time signals have none
        return f"signal {number}"


def _started(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], tuple[FileIO, FileIO, FileIO]]:
    """Start a worker; return it and our ends of its pipes: requests, answers, printed text."""
    with ExitStack() as undo:
        ends = [tuple(map(undo.enter_context, pipe())) for _ in range(3)]
        (its_requests, requests), (answers, its_answers), (printed, its_output) = ends
        passed = its_requests.fileno(), its_answers.fileno()
        process = subprocess.Popen(
            [*command, *map(str, passed)],
            stdin=subprocess.DEVNULL,
            stdout=its_output,
            stderr=its_output,
            pass_fds=passed,
            start_new_session=True,
            env=environment,
        )
        undo.pop_all()
    for end in (its_requests, its_answers, its_output):
        end.close()
    return process, (requests, answers, printed)


def _unblocked(end: FileIO) -> int:
    os.set_blocking(end.fileno(), False)
    return end.fileno()
