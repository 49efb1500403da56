"""The models of a server by name: loaded at first use, unloaded by least use under a limit.

A request holds the models that it uses until all of its answer is sent, and what is held stays. To
make room, the models that were used longest ago take no more requests, answer those that they have,
and leave; who asks for one of them meanwhile waits until it is loaded again, in turn. All of this
happens on the event loop, but for loading and closing, which take a thread each.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from core.errors import CoreError
from core.extensions import MemoryReporting
from core.protocols import Capability
from core_server.served import Served


@dataclass(frozen=True, slots=True)
class Loadable:
    """A model that is loaded when somebody asks for it, by ``load``, on a thread.

    ``size_bytes`` is what it takes as far as its files tell; once it was loaded, what it took
    counts.
    """

    name: str
    load: Callable[[], Served]
    backend: str = ""
    model_type: str = ""
    size_bytes: int = 0


@dataclass(eq=False, slots=True)
class Shelf:
    """One name: its model, if it is loaded, and the requests that hold it or wait for it.

    ``counted`` is what the queues of its model counted that were closed with it.
    """

    name: str
    backend: str
    model_type: str
    loadable: Loadable | None
    served: Served | None = None
    bytes_: int = 0
    held: int = 0
    leaving: bool = False
    used: int = 0
    loads: int = 0
    loading: asyncio.Task[None] | None = None
    waiting: deque[asyncio.Future[Served]] = field(default_factory=deque)
    counted: Counter[tuple[str, str]] = field(default_factory=Counter)
    since: int = field(default_factory=lambda: int(time.time()))

    @property
    def open(self) -> bool:
        """Whether a request may have it at once."""
        return self.served is not None and not self.leaving


_HELD: ContextVar[list[Shelf]] = ContextVar("models that this request holds")


class Models:
    """The shelves of a server in their order; ``limit`` is in bytes, for all models together."""

    def __init__(self, offered: Sequence[Served | Loadable], limit: int | None = None) -> None:
        if not offered:
            raise ValueError("A server needs a model at least.")
        self.shelves = {each.name: _shelf(each) for each in offered}
        if len(self.shelves) < len(offered):
            raise ValueError("Two of the models have one name.")
        self._limit = limit
        self._turn = asyncio.Lock()  # one is loaded at a time, in the order that they were asked
        self._freed = asyncio.Event()
        self._clock = itertools.count(1)

    @contextmanager
    def holding(self) -> Iterator[Callable[[], None]]:
        """What is taken in this context is held until the function is called that it gives."""
        held: list[Shelf] = []
        token = _HELD.set(held)
        try:
            yield lambda: self._release(held)
        finally:
            _HELD.reset(token)

    async def take(self, name: str) -> Served:
        """The model of this name, loaded. Raises KeyError, and what loading it raises."""
        shelf = self.shelves[name]
        shelf.used = next(self._clock)
        if shelf.open:
            shelf.held += 1
            assert shelf.served is not None
            served = shelf.served
        else:
            served = await self._wait(shelf)
        _HELD.get().append(shelf)
        return served

    async def close(self) -> None:
        """Close all models, behind those that are being loaded; nobody may hold one."""
        for shelf in self.shelves.values():
            if shelf.loading is not None:
                await shelf.loading
            await self._unload(shelf)

    # ------------------------------------------------------------------ who holds what

    async def _wait(self, shelf: Shelf) -> Served:
        waiter: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
        shelf.waiting.append(waiter)
        if shelf.loading is None:
            shelf.loading = asyncio.create_task(self._load(shelf))
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release([shelf])  # it was handed out, and nobody is there to take it
            raise

    def _release(self, held: list[Shelf]) -> None:
        for shelf in held:
            shelf.held -= 1
            shelf.used = next(self._clock)
        held.clear()
        self._freed.set()

    # ------------------------------------------------------------------ loading, unloading

    async def _load(self, shelf: Shelf) -> None:
        """Load a model, and hand it to all who wait. Does not raise: who waits is told."""
        error: Exception | None = None
        async with self._turn:
            try:
                if shelf.served is None:
                    await self._make_room(shelf.bytes_)
                    await self._take_in(shelf)
                    await self._make_room(0, but=shelf)  # where it took more than was thought
            except Exception as failed:  # noqa: BLE001 - it is theirs to hear who wait
                error = failed
            shelf.loading = None
            waiting, shelf.waiting = shelf.waiting, deque()
            for waiter in waiting:
                if waiter.done():
                    continue
                if error is not None or shelf.served is None:
                    waiter.set_exception(error or RuntimeError("The model is not there."))
                else:
                    shelf.held += 1
                    waiter.set_result(shelf.served)

    async def _take_in(self, shelf: Shelf) -> None:
        loadable = shelf.loadable
        assert loadable is not None
        others = [each for each in self._loaded() if each.backend == loadable.backend]
        before = max((_reported(each) for each in others), default=0)
        shelf.served = await asyncio.to_thread(loadable.load)
        shelf.model_type = shelf.served.model.model_type
        shelf.loads += 1
        shelf.bytes_ = max(loadable.size_bytes, _reported(shelf) - before)

    async def _make_room(self, needed: int, but: Shelf | None = None) -> None:
        """Unload the models that were used longest ago, until ``needed`` bytes are free.

        Where all of them are not enough, they all go: a model beyond the limit is served alone.
        """
        leaving = self._longest_unused(needed, but)
        for shelf in leaving:
            shelf.leaving = True
        try:
            while any(shelf.held for shelf in leaving):
                self._freed.clear()
                await self._freed.wait()
            for shelf in leaving:
                await self._unload(shelf)
        finally:
            for shelf in leaving:
                shelf.leaving = False

    def _longest_unused(self, needed: int, but: Shelf | None) -> list[Shelf]:
        if self._limit is None:
            return []
        taken = sum(shelf.bytes_ for shelf in self._loaded())
        found = []
        for shelf in sorted(self._loaded(), key=lambda each: each.used):
            if taken + needed <= self._limit:
                break
            if shelf is not but and shelf.loadable is not None:
                found.append(shelf)
                taken -= shelf.bytes_
        return found

    def _loaded(self) -> list[Shelf]:
        return [shelf for shelf in self.shelves.values() if shelf.served is not None]

    async def _unload(self, shelf: Shelf) -> None:
        served, shelf.served = shelf.served, None
        if served is not None:
            await asyncio.to_thread(served.close)
            shelf.counted.update(served.counted())


def _shelf(offered: Served | Loadable) -> Shelf:
    if isinstance(offered, Loadable):
        kind, size = offered.model_type, offered.size_bytes
        return Shelf(offered.name, offered.backend, kind, offered, bytes_=size)
    kind = offered.model.model_type
    shelf = Shelf(offered.name, offered.backend, kind, None, offered)
    shelf.loads, shelf.bytes_ = 1, _reported(shelf)
    return shelf


def _reported(shelf: Shelf) -> int:
    """The memory that the library of a model reports; some do, for all its models together."""
    if shelf.served is None or Capability.MEMORY_REPORTING not in shelf.served.capabilities:
        return 0
    model: object = shelf.served.model
    try:
        return model.memory().active_bytes if isinstance(model, MemoryReporting) else 0
    except CoreError:
        return 0
