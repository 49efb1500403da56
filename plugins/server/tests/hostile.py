"""Clients that ask for too much, or never end, next to some that behave.

Run as a program, so that the tests' own process keeps still: it prints what came of it.
``python hostile.py PORT SECONDS SEED``
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable

_LINES = "application/x-ndjson"
_NAMES = [f"t{number}" for number in range(4_000)]
Attack = Callable[["Client"], object]


class Client:
    """One connection, to a server of the models a and b."""

    def __init__(self, port: int, dice: random.Random) -> None:
        self.dice = dice
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        self.socket.settimeout(120)
        self.socket.connect(("127.0.0.1", port))

    def send(self, path: str, body: bytes, type_: str = "application/json", **more: object) -> None:
        """Send a request; ``size`` is what it says that the body has, ``encoding`` its encoding."""
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {type_}\r\n"
        if "encoding" in more:
            head += f"Content-Encoding: {more['encoding']}\r\n"
        head += f"Content-Length: {more.get('size', len(body))}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def status(self) -> int:
        """The status of the answer; 0 where there is none."""
        return int((self.socket.recv(4_096).split() or [b"", b"0"])[1])

    def leave(self) -> None:
        """Close the connection, or reset it."""
        if self.dice.random() < 0.5:
            linger = struct.pack("ii", 1, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()


def _refused(client: Client, path: str, body: dict[str, object]) -> None:
    client.send(path, json.dumps(body).encode())
    status = client.status()
    assert status in (400, 413, 422, 429, 503, 0), (path, status)


def products(client: Client) -> None:
    """Ask for too many rows, too long prompts, too many samples."""
    names = _NAMES[: client.dice.randrange(2_000, 4_000)]
    many: dict[str, object] = {"mode": "many", "template": "{text} {label}"}
    question = {"type": "choice", "criteria": {"a": None, "b": None}}
    questions: dict[str, object] = dict.fromkeys(names[:400], question)
    kinds: list[tuple[str, dict[str, object]]] = [
        ("/v1/classify", {"texts": names, "labels": names} | many),
        ("/v1/classify", {"texts": names, "labels": ["x", "y"], "template": "{text}" * 9**5}),
        ("/v1/core/classify", {"arguments": {"prompts": names}, "options": {"labels": names}}),
        ("/v1/core/score", {"arguments": {"prompts": [], "continuations": names}}),
        ("/v1/systemone", {"model": "a", "state": "s" * 10**6, "questions": questions}),
    ]
    _refused(client, *client.dice.choice(kinds))


def half(client: Client) -> None:
    """Send most of a body, and wait."""
    body = b"a" * client.dice.randrange(1, 8_300_000)
    client.send(
        "/v1/classify", body, client.dice.choice(["application/json", _LINES]), size=8 << 20
    )
    time.sleep(client.dice.random() * 3)


def stalled(client: Client) -> None:
    """Read nothing of a long answer for a while."""
    head = {"labels": ["x", "y"], "show_prompts": True, "model": client.dice.choice("ab")}
    rows = "".join(f'"{"abc" * 1_000} {n}"\n' for n in range(client.dice.randrange(10, 3_000)))
    client.send("/v1/classify", f"{json.dumps(head)}\n{rows}".encode(), _LINES)
    time.sleep(client.dice.random() * 15)


def fitting(client: Client) -> None:
    """Have a prior fitted, and leave."""
    labels = [f"{client.dice.random()}" for _ in range(client.dice.randrange(2, 2_000))]
    body = {"texts": ["a"], "labels": labels, "level": "content-free", "mode": "many"}
    body |= {"template": "word " * 300 + "{text} {label}", "model": client.dice.choice("ab")}
    client.send("/v1/classify", json.dumps(body).encode())
    time.sleep(client.dice.random())


def long_lines(client: Client) -> None:
    """Send lines of great length, or none but blank ones, in few bytes."""
    line = client.dice.choice([b"\n" * (64 << 20), b'"' + b"x" * (64 << 20)])
    body = json.dumps({"labels": ["x", "y"], "model": "a"}).encode() + b"\n" + line
    client.send("/v1/classify", zlib.compress(body, 1), _LINES, encoding="deflate")
    time.sleep(client.dice.random() * 5)


def tokens(client: Client) -> None:
    """Have long texts tokenised, and leave."""
    body = {"prompt": "a b " * client.dice.randrange(10**3, 10**6), "return_token_strs": True}
    client.send("/tokenize", json.dumps(body).encode())
    time.sleep(client.dice.random() * 2)


def asked(client: Client) -> bool:
    """Ask as one should: True if the answer came, False for a refusal that says to come again."""
    body = {"texts": ["a", "b"], "labels": ["x", "y"], "model": client.dice.choice("ab")}
    client.send("/v1/classify", json.dumps(body).encode())
    status = client.status()
    assert status in (200, 429, 503), status
    return status == 200


ATTACKS: tuple[Attack, ...] = (products, half, stalled, fitting, long_lines, tokens)


def stay(
    port: int, until: float, seed: int, attacks: tuple[Attack, ...], seen: Counter[str]
) -> None:
    """Attack, again and again; what should not be is counted as ``wrong``."""
    dice = random.Random(seed)
    while time.monotonic() < until:
        attack = dice.choice(attacks)
        begun = time.monotonic()
        try:
            client = Client(port, dice)
            try:
                served = attack(client)
            finally:
                client.leave()
            seen["served"] += served is True
            seen[attack.__name__] += 1
        except (ConnectionError, BrokenPipeError):
            seen["lost"] += 1  # who is left, or turned away
            seen["asked"] += attack is asked  # and was not served
            time.sleep(0.05)
        except (AssertionError, OSError) as error:
            seen[f"wrong: {attack.__name__} {error!r}"] += 1
        if attack is asked:
            seconds = time.monotonic() - begun
            seen["slowest_ms"] = max(seen["slowest_ms"], round(1000 * seconds))
            time.sleep(0.1)


def main() -> None:
    """Print what came of the attacks."""
    port, seconds, seed = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    seen: Counter[str] = Counter()
    until = time.monotonic() + seconds
    kinds = [ATTACKS] * 12 + [(asked,)] * 2
    threads = [
        threading.Thread(target=stay, args=(port, until, 1_000 * seed + number, kind, seen))
        for number, kind in enumerate(kinds)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.stdout.write(json.dumps(seen))


if __name__ == "__main__":
    main()
