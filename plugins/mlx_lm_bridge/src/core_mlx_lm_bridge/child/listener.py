"""The thread that reads requests while the main one works on them."""

from __future__ import annotations

import os
import select
import threading
from queue import SimpleQueue

from core_mlx_lm_bridge.child.wire import Answers
from core_mlx_lm_bridge.protocol import (
    MAX_REQUEST_BYTES,
    Cancel,
    Error,
    LineSplitter,
    ProtocolError,
    Quit,
    Request,
    decode_request,
)

_LOOK_SECONDS = 1.0  # how often it looks whether the parent still lives
_CHUNK = 2**16


class Listener:
    """A reader that queues requests, records cancels, and ends the process with its parent.

    A parent that dies closes the pipe; if a fork of it holds the pipe open, the process gets
    another parent, which is detected within a second.
    """

    def __init__(self, descriptor: int, answers: Answers) -> None:
        self.requests: SimpleQueue[Request] = SimpleQueue()
        self._descriptor, self._answers = descriptor, answers
        self._parent = os.getppid()
        self._finished = 0  # ids grow: a cancel for a lower one comes too late
        self._cancelled: set[int] = set()

    def start(self) -> None:
        """Start listening, for the life of the process."""
        threading.Thread(target=self._listen, name="listener", daemon=True).start()

    def is_cancelled(self, id: int) -> bool:
        """Return True if the caller has cancelled a request that has not finished."""
        return id in self._cancelled

    def finish(self, id: int) -> None:
        """Forget a request after its last answer."""
        self._finished = max(self._finished, id)
        self._cancelled.discard(id)

    def _listen(self) -> None:
        lines = LineSplitter(MAX_REQUEST_BYTES)
        while data := self._read():
            try:
                for line in lines.feed(data):
                    self._take(line)
            except ProtocolError as error:
                self._refuse(error)
                os._exit(1)
        os._exit(0)

    def _read(self) -> bytes:
        while not select.select([self._descriptor], [], [], _LOOK_SECONDS)[0]:
            if os.getppid() != self._parent:
                return b""
        return os.read(self._descriptor, _CHUNK)

    def _take(self, line: bytes) -> None:
        try:
            request = decode_request(line)
        except ProtocolError as error:
            self._refuse(error)
            return
        if isinstance(request, Quit):
            os._exit(0)
        if not isinstance(request, Cancel):
            self.requests.put(request)
        elif request.id > self._finished:
            self._cancelled.add(request.id)

    def _refuse(self, error: ProtocolError) -> None:
        self._answers.send(Error(id=error.id, error="ProtocolError", message=str(error)))
