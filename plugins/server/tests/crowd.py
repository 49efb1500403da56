"""Clients that connect, ask, stream, vanish and send garbage, each as its seed says.

Run as a program, so that the tests' own process keeps still: it prints what came of the visits.
``python crowd.py PORT MODEL CLIENTS SECONDS SEED``
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable

Visit = Callable[["Client"], Awaitable[None]]


class Client:
    """One connection at a time, to one server."""

    def __init__(self, port: int, model: str, seed: int, seen: Counter[str]) -> None:
        self.port, self.model, self.seen = port, model, seen
        self.random = random.Random(seed)
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def visit(self) -> None:
        """Connect, do one thing, and go, in order or not."""
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await self.random.choice(VISITS)(self)
        finally:
            if self.random.random() < 0.5:  # the connection is reset, and not closed
                linger = struct.pack("ii", 1, 0)
                sock = self.writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.close()

    def request(self, path: str, body: object, type_: str = "application/json") -> bytes:
        """A request's bytes."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {type_}\r\n"
        return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data

    def text(self, **options: object) -> bytes:
        """A request for a text."""
        prompt = f"The sea {self.random.random()}"
        body = {"model": self.model, "prompt": prompt, "max_tokens": 12, "n": 2, **options}
        return self.request("/v1/completions", body)

    def decision(self) -> bytes:
        """A request for a decision."""
        labels = self.random.choice([("a", "b"), ("red", "green", "blue")])
        question = {"type": "choice", "criteria": dict.fromkeys(labels)}
        state = f"It is {self.random.random()}"
        body = {"model": "jev-latest", "state": state, "questions": {"q": question}}
        return self.request("/v1/systemone", body)

    async def answer(self) -> tuple[int, bytes]:
        """The status and the body of the next answer."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
        status = int(head.split()[1])
        if b"content-length" in fields:
            return status, await self.reader.readexactly(int(fields[b"content-length"]))
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)
        return status, body


async def whole(client: Client) -> None:
    """Ask once or thrice on one connection, and read each answer."""
    for _ in range(client.random.choice([1, 3])):
        request = client.random.choice([client.decision, client.text])()
        client.writer.write(request)
        status, body = await client.answer()
        assert status in (200, 429), (status, body)
        json.loads(body)
        client.seen[f"whole {status}"] += 1


async def streamed(client: Client) -> None:
    """Read a stream to its end."""
    client.writer.write(client.text(stream=True))
    status, body = await client.answer()
    assert status in (200, 429), (status, body)
    assert status == 429 or body.endswith(b"data: [DONE]\n\n"), body
    assert status == 429 or body.count(b'"finish_reason":"') == 2, body
    client.seen[f"streamed {status}"] += 1


async def lines(client: Client) -> None:
    """Classify some lines."""
    texts = [{"labels": ["a", "b"]}, *(f"text {n}" for n in range(20))]
    body = "".join(json.dumps(text) + "\n" for text in texts).encode()
    client.writer.write(client.request("/v1/classify", body, "application/x-ndjson"))
    status, content = await client.answer()
    assert status in (200, 429), (status, content)
    assert status == 429 or content.count(b'"label"') >= 20, content
    client.seen[f"lines {status}"] += 1


async def vanishing(client: Client) -> None:
    """Go in the middle: of the head, of the body, of the wait, or of the stream."""
    request = client.random.choice([client.decision(), client.text(stream=True), client.text()])
    client.writer.write(request[: client.random.randrange(1, 2 * len(request))])
    await client.writer.drain()
    await asyncio.sleep(client.random.random() * 0.2)
    if client.random.random() < 0.5:
        await asyncio.wait_for(client.reader.read(client.random.randrange(1, 400)), 5)
    client.seen["vanished"] += 1


async def garbage(client: Client) -> None:
    """Send bytes that are no request, or a request whose body is no JSON."""
    noise = client.random.randbytes(client.random.randrange(1, 3000))
    if client.random.random() < 0.5:
        client.writer.write(noise + b"\r\n\r\n")
        await client.reader.read(4096)
    else:
        path = client.random.choice(["/v1/systemone", "/v1/completions", "/v1/classify", "/none"])
        client.writer.write(client.request(path, noise))
        status, _ = await client.answer()
        assert 400 <= status < 500, status
    client.seen["garbage"] += 1


VISITS: tuple[Visit, ...] = (whole, whole, streamed, streamed, lines, vanishing, vanishing, garbage)


async def _stay(client: Client, until: float) -> None:
    while time.monotonic() < until:
        try:
            await asyncio.wait_for(client.visit(), 120)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            client.seen[f"lost {type(error).__name__}"] += 1
            await asyncio.sleep(0.05)


async def crowd(port: int, model: str, clients: int, seconds: float, seed: int) -> Counter[str]:
    """What came of all visits."""
    seen: Counter[str] = Counter()
    until = time.monotonic() + seconds
    people = (Client(port, model, seed * 100_003 + n, seen) for n in range(clients))
    await asyncio.gather(*(_stay(person, until) for person in people))
    return seen


if __name__ == "__main__":
    port, model, clients, seconds, seed = sys.argv[1:]
    counts = crowd(int(port), model, int(clients), float(seconds), int(seed))
    sys.stdout.write(json.dumps(asyncio.run(counts)))
