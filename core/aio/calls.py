"""Calls of any model in an event loop.

`ThreadCalls` implements `core.Asynchronous` for models without support for event loops: a thread
for each call passes its results on.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeVar

from core.errors import UnsupportedOptionError
from core.kit.operations import OPERATIONS
from core.options import CancelToken, GenerateConfig, TemplateOptions
from core.protocols import TextModel
from core.types import FinishReason, GenerateMetrics

T = TypeVar("T")

_BUFFER = 256  # items that a stream's thread goes ahead of its reader


class ThreadCalls:
    """The calls of one model, each in a thread. See `core.Asynchronous`."""

    def __init__(self, model: TextModel) -> None:
        self._model = model

    async def call_async(
        self, operation: str, /, *arguments: Any, **options: Any
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of the method with that name, and its cost."""
        method, cancel = getattr(self._model, operation), _Cancel(arguments, options)
        _, keywords = OPERATIONS.get(operation, ("", TemplateOptions))
        cancellable = "cancel" in keywords.__annotations__

        def work() -> tuple[object, GenerateMetrics]:
            if cancellable:
                return cancel.applied(method, arguments, options), self._model.metrics
            return method(*arguments, **options), GenerateMetrics()

        return await in_thread(work, cancel.set)

    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> ThreadStream:
        """Return the stream of the method with that name. Invalid options raise here."""
        method, cancel = getattr(self._model, operation), _Cancel(arguments, options)
        items = cancel.applied(method, arguments, options)
        return ThreadStream(items, cancel, lambda: self._model.metrics)


async def in_thread(work: Callable[[], T], stop: Callable[[], object] = lambda: None) -> T:
    """Run ``work`` in a separate thread, and return its result or raise its error.

    If the task is cancelled, ``stop`` is called, and the thread is not waited for.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def run() -> None:
        try:
            result = context.run(work)
        except StopIteration as error:  # which no future takes
            _schedule(loop, _settle, done, None, RuntimeError(f"a call raised {error!r}"))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            _schedule(loop, _settle, done, None, error)
        else:
            _schedule(loop, _settle, done, result, None)

    threading.Thread(target=run, name="core-aio", daemon=True).start()
    try:
        return await done
    except asyncio.CancelledError:
        stop()
        raise


class ThreadStream:
    """Items that a thread reads for a task. See `core.AsyncStream`.

    The thread starts when the first item is requested, and reads ahead by a bounded number. A
    stream that is dropped is stopped.
    """

    def __init__(
        self, items: Iterator[Any], cancel: _Cancel, metrics: Callable[[], GenerateMetrics]
    ) -> None:
        self._reading = _Reading(items, cancel, metrics)
        self._dropped = weakref.finalize(self, self._reading.stop)
        self._dropped.atexit = False

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why it ended; None until it has, and for streams that are not of tokens."""
        return self._reading.finish_reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of the request; final once it has ended."""
        return self._reading.metrics

    def __aiter__(self) -> ThreadStream:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._reading.next()
        finally:
            if self._reading.over:
                self._dropped.detach()

    async def aclose(self) -> None:
        """Stop the request, and wait for its thread."""
        try:
            await self._reading.close()
        finally:
            self._dropped.detach()


class _Reading:
    """The thread of one stream, and the items in transit to the task."""

    def __init__(
        self, items: Iterator[Any], cancel: _Cancel, metrics: Callable[[], GenerateMetrics]
    ) -> None:
        self._items, self._cancel, self._metrics_of = items, cancel, metrics
        self._room = threading.Semaphore(_BUFFER)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: asyncio.Queue[tuple[Any, BaseException | None, bool]] = asyncio.Queue()
        self._ended = asyncio.Event()
        self._stopped = False
        self.over = False  # not the error that ended it, whose frames hold the stream
        self.finish_reason: FinishReason | None = None
        self.metrics = GenerateMetrics()

    async def next(self) -> Any:
        """Return the next item. Raises the stream's error, or StopAsyncIteration after its end."""
        if self.over:
            raise StopAsyncIteration
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            context = copy_context()
            run = threading.Thread(
                target=context.run, args=(self._run,), name="core-aio", daemon=True
            )
            run.start()
        try:
            item, error, last = await self._queue.get()
        except BaseException:  # the task was cancelled, or is dropped
            self.over = True
            self.stop()
            raise
        self._room.release()
        if not last:
            return item
        self.over = True
        try:
            raise error or StopAsyncIteration
        finally:
            del error  # its traceback keeps this frame

    def stop(self) -> None:
        """Tell the thread to end the stream. Callable from any thread, more than once."""
        self._stopped = True
        self._cancel.set()
        self._room.release()
        if self._loop is None:
            self._close()

    async def close(self) -> None:
        """Stop the stream, and wait for the thread."""
        self.over = True
        self.stop()
        if self._loop is not None:
            await self._ended.wait()

    def _run(self) -> None:
        """Read the items, in the thread, and pass them on; close the stream in any case."""
        error: BaseException | None = None
        try:
            for item in self._items:
                self._room.acquire()
                if self._stopped:
                    break
                self._put(item, None, False)
        except BaseException as raised:  # noqa: BLE001 - raised where it is awaited
            error = raised
        finally:
            self._close()
            self._put(None, error, True)
            del error  # its traceback keeps this frame
            assert self._loop is not None
            _schedule(self._loop, self._ended.set)

    def _put(self, item: Any, error: BaseException | None, last: bool) -> None:
        assert self._loop is not None
        if not _schedule(self._loop, self._queue.put_nowait, (item, error, last)):
            self._stopped = True

    def _close(self) -> None:
        """Close the source, and record its metrics: those of this thread's last call."""
        close = getattr(self._items, "close", None)
        with suppress(Exception):
            if close is not None:
                close()
            # A token stream has its own metrics; for pairs and results, the model has them.
            items: Any = self._items
            if hasattr(items, "finish_reason"):
                self.metrics, self.finish_reason = items.metrics, items.finish_reason
            else:
                self.metrics = self._metrics_of()


class _Cancel:
    """A cancel token that is set by the task or by the caller's own token."""

    def __init__(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        config = next((arg for arg in arguments if isinstance(arg, GenerateConfig)), None)
        token = options.get("cancel", config.cancel if config is not None else None)
        self._callers: CancelToken | None = token if isinstance(token, CancelToken) else None
        self._invalid = token is not None and self._callers is None
        self._set = threading.Event()

    def set(self) -> None:
        """Stop the request."""
        self._set.set()

    def is_set(self) -> bool:
        """See `core.CancelToken`."""
        return self._set.is_set() or (self._callers is not None and self._callers.is_set())

    def applied(
        self, method: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        """Make the call with this cancel token; without it if the backend takes none."""
        if self._invalid:
            return method(*arguments, **options)  # which raises
        try:
            if getattr(method, "__name__", "") != "submit":
                return method(*arguments, **{**options, "cancel": self})
            prompt, config = (*arguments, None)[:2]  # it takes no keywords
            if config is None or isinstance(config, GenerateConfig):
                config = replace(config or GenerateConfig(), cancel=self)
            return method(prompt, config, **options)
        except UnsupportedOptionError as error:
            if error.option != "cancel" or self._callers is not None:
                raise
            return method(*arguments, **options)


def _schedule(
    loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: Any
) -> bool:
    """Schedule a call in the loop. Return False if the loop has ended."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        return False
    return True


def _settle(done: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
