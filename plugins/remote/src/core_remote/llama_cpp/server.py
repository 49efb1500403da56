"""The routes of llama.cpp's server, for work that runs on the connection's thread.

A ``/completion`` waits for its turn; routes that do not use the model do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec

from core_remote.connection import Connection
from core_remote.llama_cpp.events import Event, decoded, event_of, refusal_of
from core_remote.llama_cpp.requests import COMPLETION

T = TypeVar("T")

_AT_ONCE = 16  # short requests: a thousand rows are not a thousand connections


class _Ids(msgspec.Struct):
    tokens: list[Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]]


class _Content(msgspec.Struct):
    content: str


class _Prompt(msgspec.Struct):
    prompt: str


class LlamaServer:
    """A server. Every method raises `core.RequestError`, or `core.BackendProcessError`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.address = connection.address
        self._few = asyncio.Semaphore(_AT_ONCE)

    async def tokenize(self, content: str | Sequence[str | int], *, add_special: bool) -> list[int]:
        """Return the ids of a literal text, or of literal texts with ids between them."""
        body = {"content": content, "add_special": add_special, "parse_special": False}
        return (await self._short("/tokenize", body, _Ids)).tokens

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        return (await self._short("/detokenize", {"tokens": list(tokens)}, _Content)).content

    async def apply_template(self, turns: Sequence[Mapping[str, str]]) -> str:
        """Return a conversation rendered with the model's chat template."""
        return (await self._short("/apply-template", {"messages": list(turns)}, _Prompt)).prompt

    async def complete(self, body: Mapping[str, Any]) -> Event:
        """Return the complete answer of a completion."""
        async with self.connection.turn():
            return await self._post(COMPLETION, body, Event)

    @asynccontextmanager
    async def stream(self, body: Mapping[str, Any]) -> AsyncIterator[AsyncIterator[Event]]:
        """Yield the events of a completion; closing the generator early stops the server."""
        connection = self.connection
        async with (
            connection.turn(),
            connection.lines(COMPLETION, body, body["n_predict"]) as lines,
        ):
            yield self._events(lines)

    async def _events(self, lines: AsyncIterator[bytes]) -> AsyncIterator[Event]:
        async for line in lines:
            event = event_of(line, self.address)
            if event is not None:
                yield event

    async def _short(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        async with self._few:
            return await self._post(path, body, kind)

    async def _post(self, path: str, body: Mapping[str, Any], kind: type[T]) -> T:
        status, answer = await self.connection.fetch(path, body)
        if status != 200:
            raise refusal_of(status, answer, self.address)
        return decoded(answer, kind, self.address)
