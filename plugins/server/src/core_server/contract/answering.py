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
from core.wires.contract import ROWS, Call, config_of
from core.wires.errors import OPENAI
from core.wires.plain import plain, value_of
from core_server.contract.calls import Event, events, with_stop
from core_server.contract.describing import describe
from core_server.contract.sizes import bytes_of_call
from core_server.replies import NDJSON, reply
from core_server.served import Served
from core_server.work import Work

if TYPE_CHECKING:
    from core_server.app import Server

_END = b""
_WAITING = 256  # lines of rows that are made before their reader takes them
_AT_ONCE = 1024  # lines that make one piece


class Contract:
    """The routes of one server, and its calls that run, by the ids that clients gave them."""

    def __init__(self) -> None:
        self._running: dict[str, threading.Event] = {}

    async def answer(self, operation: str, server: Server, work: Work) -> Response:
        """The answer to one request; raises what keeps it from one."""
        call = await work.read(_call)
        if operation == "cancel":
            return self._cancelled(call.id)
        served = await server.model_or_first(call.model)
        if operation == "describe":
            found = await asyncio.to_thread(describe, served)
            return reply({"value": plain(found)})
        cancel = threading.Event()
        config = with_stop(_config(call.options), cancel, server.settings.timeout)
        work.share.take(bytes_of_call(operation, call, config, served.model.info))
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
        made: asyncio.Queue[bytes] = asyncio.Queue()
        waiting, gone = threading.Semaphore(_WAITING), threading.Event()

        def put(line: bytes) -> None:
            # Rows are all there: as lines, they wait for their reader. Tokens are taken as they
            # come, for those of other requests are made beside them.
            while operation in ROWS and not gone.is_set() and not waiting.acquire(timeout=1.0):
                pass
            try:
                loop.call_soon_threadsafe(made.put_nowait, line)
            except RuntimeError:  # the loop has ended
                cancel.set()

        def work() -> None:
            try:
                for event in events(served, operation, call, config):
                    put(_line(event))
                    if gone.is_set():
                        break
            except BaseException as error:  # noqa: BLE001 - told as the last line
                put(_line(error))
            put(_END)

        if call.id:
            self._running[call.id] = cancel
        try:
            threading.Thread(target=work, name="core-server-call", daemon=True).start()
            async for lines in _gathered(made):
                waiting.release(len(lines))
                yield b"".join(lines)
        finally:
            gone.set()
            cancel.set()
            if self._running.get(call.id) is cancel:
                del self._running[call.id]


async def _gathered(made: asyncio.Queue[bytes]) -> AsyncIterator[list[bytes]]:
    """What is there, as soon as anything is: a slow reader gets fewer, larger pieces."""
    while True:
        lines = [await made.get()]
        with suppress(asyncio.QueueEmpty):
            while lines[-1] != _END and len(lines) < _AT_ONCE:
                lines.append(made.get_nowait())
        yield lines
        if lines[-1] == _END:
            return


def _line(item: Event | BaseException) -> bytes:
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
