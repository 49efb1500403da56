"""``POST /v1/core/OPERATION``: a call on a separate thread, and its events as lines.

The thread passes its events to the event loop. A client that disconnects, or that cancels the
call by its id, sets the call's cancel; the model then stops it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextvars import copy_context

import msgspec
from starlette.responses import Response, StreamingResponse

from core.errors import CoreError, RequestError
from core.options import GenerateConfig
from core_server.access_log import note
from core_server.replies import NDJSON, reply
from core_server.request_body import RequestBody
from core_server.routes.contract.calls import Event, bytes_of_call, events, with_stop
from core_server.routes.contract.describing import describe
from core_server.served import Served
from core_server.server import Server
from core_server.threads import call_in_loop
from core_wires.contract import METHODS, Call, config_of
from core_wires.errors import OPENAI
from core_wires.plain import plain, value_of

_END = b""
_WAITING = 256  # lines of rows that may wait for their reader
_AT_ONCE = 1024  # lines of one piece


class Contract:
    """The routes of one server, and its running calls by the ids that clients gave them."""

    def __init__(self) -> None:
        self._running: dict[str, threading.Event] = {}

    async def answer(self, operation: str, server: Server, body: RequestBody) -> Response:
        """Return the answer to one request; errors are raised."""
        call = await body.read(_call)
        if operation == "cancel":
            return self._cancelled(call.id)
        served = await server.model_or_first(call.model)
        if operation == "describe":
            description = await asyncio.to_thread(describe, served)
            return reply({"value": plain(description)})
        cancel = threading.Event()

        def sized() -> tuple[GenerateConfig, int]:
            config = with_stop(_config(call.options), cancel, server.settings.timeout)
            return config, bytes_of_call(operation, call, config, served.model.info)

        config, size = await body.brief(sized)
        body.share.take(size)
        prompts = call.arguments.get("prompts")
        note(len(prompts) if isinstance(prompts, list) else 1)
        # What is computed waits for its reader without the model: others may need its room.
        release = server.models.releasing()
        lines = self._lines(served, operation, call, config, cancel, release)
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
        release: Callable[[], None],
    ) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        waiting, gone = threading.Semaphore(_WAITING), threading.Event()
        complete = METHODS[operation].answer == "rows"

        def put(line: bytes) -> None:
            # Rows are complete: as lines, they wait for their reader. Tokens are taken as they
            # come, because other requests decode concurrently.
            while complete and not gone.is_set() and not waiting.acquire(timeout=1.0):
                pass
            if not call_in_loop(loop, lines.put_nowait, line):
                cancel.set()

        def done() -> None:
            call_in_loop(loop, release)

        def work() -> None:
            try:
                for event in events(served, operation, call, config, done):
                    put(_line(event))
                    if gone.is_set():
                        break
            except BaseException as error:  # noqa: BLE001 - reported as the last line
                put(_line(error))
            done()
            put(_END)

        if call.id:
            self._running[call.id] = cancel
        try:
            run = copy_context().run  # of the request, for its log
            threading.Thread(target=run, args=(work,), name="core-server-call", daemon=True).start()
            async for available in _gathered(lines):
                waiting.release(len(available))
                yield b"".join(available)
        finally:
            gone.set()
            cancel.set()
            if self._running.get(call.id) is cancel:
                del self._running[call.id]


async def _gathered(lines: asyncio.Queue[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield the available lines, as soon as there are any: a slow reader gets larger pieces."""
    available: list[bytes] = []
    while _END not in available[-1:]:
        available = [await lines.get()]
        while available[-1] != _END and len(available) < _AT_ONCE and not lines.empty():
            available.append(lines.get_nowait())
        yield available


def _line(item: Event | BaseException) -> bytes:
    if isinstance(item, BaseException):
        # Errors of the body quote only the client's data; other messages stay inside.
        note(reason=str(item))
        known = isinstance(item, CoreError)
        error = item if known or not isinstance(item, ValueError) else RequestError(str(item))
        item = {"error": plain(error)}
    return msgspec.json.encode(item) + b"\n"


def _call(body: object) -> Call:
    try:
        return value_of(Call, body)
    except ValueError as error:
        raise OPENAI.invalid((), f"The body is not a call: {error}", "invalid_value") from None


def _config(options: Mapping[str, object]) -> GenerateConfig:
    try:
        return config_of(options)
    except TypeError as error:
        raise OPENAI.invalid(("options",), str(error), "invalid_value") from None
