"""Connection to one server: a thread with an event loop that runs all requests of a model.

Calling threads and tasks wait elsewhere, so that each can poll its cancel meanwhile, and one client
serves both. Redirects are not followed, and neither proxies nor netrc are read from the
environment: a request and its key go to the host that the user named, and nowhere else.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import httpx
import msgspec

from core.errors import CoreError, ModelClosedError
from core.kit.base import Check, check_process
from core_remote import failures
from core_remote.address import Address
from core_remote.exchange import END, Exchange, forget

T = TypeVar("T")
Put = Callable[[bytes], None]
"""Takes a line of an answer."""

MAX_LINE = 64 * 2**20  # bytes; the logits of one row are a line
_LINES, _LINES_EACH = 1000, 2  # allowed lines of an answer, and for each token or row of it
_MAX_REFUSAL = 64 * 2**10
_CONNECT_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_JOIN_SECONDS = 10.0  # a name that is being looked up keeps its thread so long


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """Address of a server and limits of its requests.

    ``silence_timeout`` is in seconds; ``slots``: concurrent requests, 0 for no limit.
    """

    address: Address
    silence_timeout: float
    slots: int = 0


class Connection:
    """A connection, open as long as its model. Any thread may send requests, and close it."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self.settings = settings
        self._pid = os.getpid()
        self._closed = False
        self._running: set[Exchange] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._client: httpx.AsyncClient | None = None
        self._turns: AbstractAsyncContextManager[object] = nullcontext()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="core-remote", daemon=True
        )
        self._thread.start()
        ready.wait()

    @property
    def address(self) -> Address:
        """The server's address."""
        return self.settings.address

    def check_usable(self) -> None:
        """Raise `ModelClosedError` after ``close()``, and in a fork."""
        if self._closed:
            raise ModelClosedError
        check_process(self._pid)

    def ask(self, path: str, body: object, most: int) -> Exchange:
        """Send a request; its answer may have about ``most`` lines."""
        self.check_usable()
        content = msgspec.json.encode(body)
        return self.carry_out(lambda exchange: self._exchange(exchange, path, content, most))

    def carry_out(self, work: Callable[[Exchange], Coroutine[Any, Any, None]]) -> Exchange:
        """Run work on the connection's thread that makes several requests and puts their lines."""
        self.check_usable()
        exchange = Exchange()
        self._running.add(exchange)
        if self._closed:  # since it was looked at
            self._running.discard(exchange)
            raise ModelClosedError
        exchange.task = self._submitted(self._carried(exchange, work(exchange)))
        return exchange

    def watch(self, exchange: Exchange, look: Callable[[], bool]) -> None:
        """Call ``look`` on every line, and in between, until True or the end of the answer."""
        exchange.watch = partial(_looked, exchange, look)
        with suppress(RuntimeError):
            forget(self._submitted(_watched(exchange)))

    def get(self, path: str, check: Check, body: object = None) -> tuple[int, bytes]:
        """Return the status and the body of a short answer: to a GET, or to a POST of ``body``."""
        return self.run(self.fetch(path, body), check)

    def get_in_turn(self, path: str, check: Check, body: object) -> tuple[int, bytes]:
        """Return the same for a request that uses the model.

        At most `limit` of them run at once.
        """
        return self.run(self._fetch_in_turn(path, body), check)

    def run(self, work: Coroutine[Any, Any, T], check: Check) -> T:
        """Return the result of work on the connection's thread.

        ``check`` may end it.
        """
        future = self._submitted(work)
        while True:
            try:
                check()
            except BaseException:
                future.cancel()
                raise
            try:
                return future.result(timeout=_LOOK_SECONDS)
            except CancelledError:  # the connection was closed
                self.check_usable()
                raise failures.died(self.address) from None
            except TimeoutError:
                if future.done():
                    raise

    def notify(self, path: str, body: object) -> None:
        """Send a request without waiting for its answer."""
        with suppress(CoreError, RuntimeError):
            self.check_usable()
            forget(self._submitted(self._unheard(path, msgspec.json.encode(body))))

    def limit(self, requests: int) -> None:
        """Set the number of concurrent requests; the others wait here."""
        self._turns = asyncio.Semaphore(requests)

    def close(self) -> None:
        """End running requests, with `ModelClosedError`, and the thread. May be called twice."""
        self._closed = True
        loop, stop = self._loop, self._stop
        if os.getpid() != self._pid or loop is None or stop is None:
            return
        for exchange in [*self._running]:
            exchange.put(ModelClosedError())
        with suppress(RuntimeError):  # it has ended
            loop.call_soon_threadsafe(stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_SECONDS)

    # ------------------------------------------------------------------ on the thread

    def _run(self, ready: threading.Event) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self.settings.slots:
            self._turns = asyncio.Semaphore(self.settings.slots)
        try:
            async with self._new_client() as self._client:
                ready.set()
                await self._stop.wait()
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
        finally:
            ready.set()

    def _new_client(self) -> httpx.AsyncClient:
        headers = {"Accept-Encoding": "identity", "User-Agent": "core-remote"}
        if self.address.key:
            headers["Authorization"] = f"Bearer {self.address.key.reveal()}"
        silence = self.settings.silence_timeout
        return httpx.AsyncClient(
            headers=headers,
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
            timeout=httpx.Timeout(None, connect=min(_CONNECT_SECONDS, silence), write=silence),
        )

    def _submitted(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Return the context that waits for, and holds, one of the concurrent requests."""
        return self._turns

    @asynccontextmanager
    async def lines(
        self, path: str, body: object, most: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Yield the lines that answer a POST, about ``most``. Raises the error of a refusal."""
        async with self._sound("POST", path, msgspec.json.encode(body)) as response:
            yield self._lines(response, most)

    async def _exchange(self, exchange: Exchange, path: str, content: bytes, most: int) -> None:
        async with self._turns, self._sound("POST", path, content) as response:
            async for line in self._lines(response, most):
                exchange.put(line)
                await exchange.room()

    async def _carried(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
            exchange.put(END)
        except asyncio.CancelledError:
            exchange.put(ModelClosedError() if self._closed else failures.died(self.address))
            raise
        except Exception as error:  # noqa: BLE001 - it is the reader's
            # For a truncated answer, the reader knows best which part is missing.
            exchange.put(END if _is_broken_off(error) else self._typed(error))
        finally:
            self._running.discard(exchange)

    async def _fetch_in_turn(self, path: str, body: object) -> tuple[int, bytes]:
        async with self._turns:
            return await self.fetch(path, body)

    async def fetch(self, path: str, body: object = None) -> tuple[int, bytes]:
        """Return the same as `get`, for work that runs on the connection's thread."""
        content = None if body is None else msgspec.json.encode(body)
        method = "GET" if content is None else "POST"
        try:
            async with self._answer(method, path, content) as response:
                if response.status_code in (401, 403, 429, 503) or response.is_redirect:
                    body = await self._short(response)
                    raise failures.refused(self.address, response, body)
                if response.status_code != 200:
                    return response.status_code, await self._short(response)
                return 200, await self._whole(response)
        except Exception as error:  # noqa: BLE001 - any error becomes one of ours
            raise self._typed(error) from None

    async def _unheard(self, path: str, content: bytes) -> None:
        async with self._answer("POST", path, content) as response:
            await self._short(response)

    @asynccontextmanager
    async def _sound(self, method: str, path: str, content: bytes) -> AsyncIterator[httpx.Response]:
        async with self._answer(method, path, content) as response:
            if response.status_code != 200:
                body = await self._short(response)
                raise failures.of_request(response, body, self.address)
            yield response

    @asynccontextmanager
    async def _answer(
        self, method: str, path: str, content: bytes | None
    ) -> AsyncIterator[httpx.Response]:
        """Yield a response whose headers arrived in time. Left early, its connection is closed."""
        assert self._client is not None
        headers = {"Content-Type": "application/json"} if content is not None else {}
        url, silence = self.address.url(path), self.settings.silence_timeout
        request = self._client.build_request(method, url, content=content, headers=headers)
        try:
            async with asyncio.timeout(silence):
                response = await self._client.send(request, stream=True)
        except TimeoutError:
            raise failures.silent(self.address, silence) from None
        try:
            yield response
        finally:
            # A cancel that comes in the middle of it would leave the connection open.
            await asyncio.shield(response.aclose())

    async def _lines(self, response: httpx.Response, most: int) -> AsyncIterator[bytes]:
        """Yield the lines with content, without their ends; each has to be complete in time.

        Empty lines and comments of an event stream, which servers send to keep a connection open,
        do not count: a server that sends nothing else is silent. A request that gets far more
        lines than it can have fails, because it might never end.
        """
        parts, size, count = list[bytes](), 0, 0
        most = _LINES + _LINES_EACH * most
        chunks = response.aiter_raw()
        silence = self.settings.silence_timeout
        try:
            async with asyncio.timeout(silence) as limit:
                async for chunk in chunks:
                    *ended, rest = chunk.split(b"\n")
                    if ended:
                        ended[0] = b"".join([*parts, ended[0]])
                        parts, size = [], 0
                        lines = [line for line in map(bytes.strip, ended) if not _is_ping(line)]
                        for line in lines:
                            yield line
                        count += len(lines)
                        if count > most:
                            raise failures.nonsense(self.address, f"more than {most} lines")
                        if lines:
                            limit.reschedule(asyncio.get_running_loop().time() + silence)
                    parts.append(rest)
                    size += len(rest)
                    if size > MAX_LINE:
                        raise failures.nonsense(self.address, f"a line of over {MAX_LINE} bytes")
        except TimeoutError:
            raise failures.silent(self.address, silence) from None
        if not _is_ping(rest := b"".join(parts).strip()):
            yield rest

    async def _whole(self, response: httpx.Response) -> bytes:
        data = bytearray()
        silence = self.settings.silence_timeout
        try:
            async with asyncio.timeout(silence):
                async for chunk in response.aiter_raw():
                    data += chunk
                    if len(data) > MAX_LINE:
                        raise failures.nonsense(self.address, f"a body of over {MAX_LINE} bytes")
        except TimeoutError:
            raise failures.silent(self.address, silence) from None
        return bytes(data)

    async def _short(self, response: httpx.Response) -> bytes:
        """Return the beginning of the body of an error response."""
        data = bytearray()
        with suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(min(5.0, self.settings.silence_timeout)):
                async for chunk in response.aiter_raw():
                    data += chunk
                    if len(data) >= _MAX_REFUSAL:
                        break
        return bytes(data[:_MAX_REFUSAL])

    def _typed(self, error: Exception) -> Exception:
        if isinstance(error, CoreError):
            return error
        if _is_broken_off(error):
            return failures.died(self.address)
        if isinstance(error, httpx.RemoteProtocolError):
            return failures.nonsense(self.address, str(error)[:200])
        return failures.unreachable(self.address, error)


def _is_ping(line: bytes) -> bool:
    """Return whether a line has no content: it is empty, or a comment of an event stream."""
    return line[:1] in (b"", b":")


def _is_broken_off(error: Exception) -> bool:
    """Return whether an open connection ended: its server died, or gave up."""
    if isinstance(error, httpx.RemoteProtocolError):
        return any(words in str(error) for words in ("incomplete", "disconnected"))
    return isinstance(error, httpx.ReadError)


def _looked(exchange: Exchange, look: Callable[[], bool]) -> None:
    if look():
        exchange.watch = None


async def _watched(exchange: Exchange) -> None:
    task = exchange.task
    while exchange.watch is not None and task is not None and not task.done():
        exchange.watch()
        await asyncio.sleep(_LOOK_SECONDS)
    exchange.watch = None
