"""What a server allows, and where it listens."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from core.secret import Secret

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a server; without ``api_key``, a `core.Secret` once it is here, it asks for none.

    ``max_queue`` are the requests that are accepted at once, those that run included; ``max_body``
    is in bytes. ``timeout`` is in seconds, one time for the work on a request and one for sending
    its answer, and ``body_timeout`` for its body. A body of lines has ``max_lines`` bytes at most,
    ``timeout`` to come, and as long for each part of its answer; a line has ``max_body`` bytes.

    ``max_memory`` are the bytes that all requests may take together, for bodies, the prompts made
    of them, results and answers; ``max_spooled`` those of all bodies of lines, which are on disk.
    ``memory_limit`` is in bytes, for all models together: those that are loaded at first use are
    unloaded by least use. ``hosts`` are the names that a request may call the server by; empty
    allows every name.
    """

    api_key: Secret | str | None = None
    max_queue: int = 512
    max_body: int = 8 << 20
    timeout: float | None = 600.0
    body_timeout: float = 60.0
    max_lines: int = 1 << 30
    max_memory: int = 512 << 20
    max_spooled: int = 4 << 30
    chat: bool = False
    memory_limit: int | None = None
    hosts: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if isinstance(self.api_key, str):
            key = Secret(self.api_key.strip("\r\n"))  # line ends are those of a file
            object.__setattr__(self, "api_key", key)


def is_local(host: str) -> bool:
    """Whether only programs of this machine reach an address."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
