"""``POST /v1/core/OPERATION``: a call on a thread of its own, and its events as lines.

The thread hands what it makes to the event loop. Who leaves, and who asks for it by the call's id,
sets the call's cancel; the model then ends it where it is.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response, StreamingResponse

from core.errors import CoreError, RequestError
from core.options import GenerateConfig
from core.wires.contract import Call, config_of
from core.wires.errors import OPENAI
from core.wires.plain import plain, value_of
from core_server.contract.calls import Event, events, with_stop
from core_server.contract.describing import describe
from core_server.replies import NDJSON, reply
from core_server.served import Served

if TYPE_CHECKING:
    from core_server.app import Server

_END = object()
_Item = Event | BaseException | object


class Contract:
    """The routes of one server, and its calls that run, by the ids that clients gave them."""

    def __init__(self) -> None:
        self._running: dict[str, threading.Event] = {}

    async def answer(self, operation: str, server: Server, body: object) -> Response:
        """The answer to one request; raises what keeps it from one."""
        call = _call(body)
        if operation == "cancel":
            return self._cancelled(call.id)
        served = await server.model_or_first(call.model)
        if operation == "describe":
            found = await asyncio.to_thread(describe, served)
            return reply({"value": plain(found)})
        cancel = threading.Event()
        config = with_stop(_config(call.options), cancel, server.settings.timeout)
        lines = self._lines(served, operation, call, config, cancel)
        return StreamingResponse(lines, media_type=NDJSON)

    def _cancelled(self, id: str) -> Response:
        running = self._running.get(id)
        if running is not None:
            running.set()
        return reply({"value": running is not None})

    async def _lines(
        self,
        served: Served,
        operation: str,
        call: Call,
        config: GenerateConfig,
        cancel: threading.Event,
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        made: asyncio.Queue[_Item] = asyncio.Queue()

        def put(item: _Item) -> None:
            try:
                loop.call_soon_threadsafe(made.put_nowait, item)
            except RuntimeError:  # the loop has ended
                cancel.set()

        def work() -> None:
            try:
                for event in events(served, operation, call, config):
                    put(event)
            except BaseException as error:  # noqa: BLE001 - told as the last line
                put(error)
            put(_END)

        if call.id:
            self._running[call.id] = cancel
        try:
            threading.Thread(target=work, name="core-server-call", daemon=True).start()
            async for items in _gathered(made):
                yield b"".join(map(_line, items))
        finally:
            cancel.set()
            if self._running.get(call.id) is cancel:
                del self._running[call.id]


async def _gathered(made: asyncio.Queue[_Item]) -> AsyncIterator[list[_Item]]:
    """What is there, as soon as anything is: a slow reader gets fewer, larger pieces."""
    while True:
        items = [await made.get()]
        with suppress(asyncio.QueueEmpty):
            while items[-1] is not _END:
                items.append(made.get_nowait())
        over = items[-1] is _END
        yield items[:-1] if over else items
        if over:
            return


def _line(item: _Item) -> bytes:
    if isinstance(item, BaseException):
        # What a wrong body is told of is the client's own; other words stay inside.
        known = isinstance(item, CoreError)
        error = item if known or not isinstance(item, ValueError) else RequestError(str(item))
        item = {"error": plain(error)}
    return msgspec.json.encode(item) + b"\n"


def _call(body: object) -> Call:
    try:
        return value_of(Call, body)
    except ValueError as error:
        raise OPENAI.invalid((), f"It is no call: {error}", "invalid_value") from None


def _config(options: Mapping[str, object]) -> GenerateConfig:
    try:
        return config_of(options)
    except TypeError as error:
        raise OPENAI.invalid(("options",), str(error), "invalid_value") from None
