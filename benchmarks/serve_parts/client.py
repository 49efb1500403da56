"""Clients of a server over HTTP/1.1, so light that they are not what is measured.

A connection is kept where the server keeps it (mlx_lm.server speaks HTTP/1.0, and does not). Only
what servers here send is read: a body with a length, in chunks, or up to the connection's end
(RFC 9112, section 6.3).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Any

_LARGEST = 1 << 26  # bytes of a line or a body
Headers = dict[str, str]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: a path, and a body of JSON."""

    path: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Load:
    """The results of many requests: bodies in their order, and seconds of each and of all."""

    bodies: list[bytes]
    latencies: list[float]
    seconds: float

    def replies(self) -> Iterator[Any]:
        """The bodies, parsed."""
        return map(json.loads, self.bodies)


class Connection:
    """One client, one request after another."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, ask: Ask) -> bytes:
        """Return the body of the answer; raises if its status is not 200."""
        data = json.dumps(ask.body).encode()
        head = (
            f"POST {ask.path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        )
        if self._streams is None:
            opened = asyncio.open_connection("127.0.0.1", self._port, limit=_LARGEST)
            self._streams = await opened
        reader, writer = self._streams
        writer.write(head.encode() + data)
        status, headers = await _head(reader)
        body = await _body(reader, headers)
        if status.startswith("HTTP/1.0") or headers.get("connection", "").lower() == "close":
            await self.aclose()
        if " 200 " not in status:
            raise RuntimeError(f"{ask.path}: {status} {body[:500]!r}")
        return body

    async def aclose(self) -> None:
        """Disconnect; the next request connects again."""
        if self._streams is not None:
            writer = self._streams[1]
            self._streams = None
            writer.close()
            with suppress(ConnectionError):  # the server was first
                await writer.wait_closed()


async def _head(reader: asyncio.StreamReader) -> tuple[str, Headers]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    return lines[0], {name.lower(): value.strip() for name, _, value in pairs}


async def _body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    if "content-length" in headers:
        return await reader.readexactly(int(headers["content-length"]))
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.read()
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(parts)


def load(port: int, asks: Sequence[Ask], clients: int) -> Load:
    """Send all requests from this many clients, each sending the next as soon as it has a reply."""
    return asyncio.run(_load(port, asks, clients))


async def _load(port: int, asks: Sequence[Ask], clients: int) -> Load:
    bodies, latencies = [b""] * len(asks), [0.0] * len(asks)
    places = iter(range(len(asks)))  # shared: who is free takes the next

    async def client(places: Iterable[int]) -> None:
        async with aclosing(Connection(port)) as connection:
            for place in places:
                started = time.perf_counter()
                bodies[place] = await connection.post(asks[place])
                latencies[place] = time.perf_counter() - started

    started = time.perf_counter()
    await asyncio.gather(*(client(places) for _ in range(min(clients, len(asks)))))
    return Load(bodies, latencies, time.perf_counter() - started)


def alternately(port: int, asks: Sequence[Ask], other: Callable[[int], object]) -> list[float]:
    """Seconds that each request takes beyond what ``other`` takes for the same, one by one."""
    return asyncio.run(_alternately(port, asks, other))


async def _alternately(
    port: int, asks: Sequence[Ask], other: Callable[[int], object]
) -> list[float]:
    added = []
    async with aclosing(Connection(port)) as connection:
        for place, ask in enumerate(asks):
            times = {}
            for name in ("there", "here") if place % 2 else ("here", "there"):
                started = time.perf_counter()
                if name == "there":
                    await connection.post(ask)
                else:
                    other(place)
                times[name] = time.perf_counter() - started
            added.append(times["there"] - times["here"])
    return added
