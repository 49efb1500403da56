"""Limits and host names of a server."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from core.secret import Secret

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of a server. ``api_key`` becomes a `core.Secret`; without one, no key is required.

    ``max_queue`` is the number of accepted requests, running ones included; ``max_body`` is in
    bytes. ``timeout`` is in seconds and applies to the work on a request, and again to sending its
    answer; ``body_timeout`` applies to receiving its body. A body of lines has at most
    ``max_lines`` bytes, ``timeout`` to arrive, and as long for each part of its answer; a line has
    at most ``max_body`` bytes.

    ``max_memory`` is the limit in bytes for all requests together: bodies, the prompts made of
    them, results and answers; ``max_spooled`` that for all bodies of lines, which are on disk.
    ``memory_limit`` is in bytes, for all models together: models loaded at first use are unloaded,
    the least recently used first. ``hosts`` are the allowed names in the Host header; empty allows
    every name. ``aliases`` are further names of models, such as one that a client has built in.
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
    aliases: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if isinstance(self.api_key, str):
            key = Secret(self.api_key.strip("\r\n"))  # a file may end its line
            object.__setattr__(self, "api_key", key)


def check_aliases(aliases: Mapping[str, str], models: Collection[str]) -> None:
    """Raise ValueError for an alias that is a model's name, or that is for none of the models."""
    for alias, name in aliases.items():
        if alias in models:
            raise ValueError(f"The alias {alias!r} is the name of a model. Choose another.")
        if name not in models:
            known = ", ".join(map(repr, models))
            raise ValueError(f"The alias {alias!r} is for {name!r}, but served are: {known}.")


def is_local(host: str) -> bool:
    """Return whether only programs on this machine can reach an address."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
