"""The worker's two ends of the pipes, protected from everything else in the process."""

from __future__ import annotations

import os
import sys
import threading

import msgspec

from core_mlx_lm_bridge.protocol import ProtocolMessage, encode


def take_over(requests: int, answers: int) -> tuple[int, int]:
    """Replace the two descriptors by copies that child processes do not inherit; return these.

    Text that libraries and their children print goes to stderr, also from C; their stdin is empty.
    The caller has ensured that, unless the worker was started by hand.
    """
    copies = os.dup(requests), os.dup(answers)
    for descriptor in {requests, answers} - {0, 1, 2}:
        os.close(descriptor)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return copies


class Answers:
    """A writer of messages, each at once and complete, from any thread."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def send(self, message: ProtocolMessage) -> None:
        """Write a message. Waits for the caller to read; without a caller the process ends."""
        data = _encoded(message)
        try:
            with self._lock:
                while data:
                    data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            os._exit(0)


def _encoded(message: ProtocolMessage) -> bytes:
    """Return a message with lone surrogates (as in file names in errors) escaped."""
    try:
        return encode(message)
    except UnicodeEncodeError:
        texts = {k: v for k, v in msgspec.structs.asdict(message).items() if isinstance(v, str)}
        plain = {k: v.encode(errors="backslashreplace").decode() for k, v in texts.items()}
        return encode(msgspec.structs.replace(message, **plain))
