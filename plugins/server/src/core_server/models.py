"""The models of a server by name: loaded at first use, unloaded by least use under a limit.

A request holds the models that it uses while they work for it, and a held model stays. To make
room, the server unloads models that no request holds, then those used longest ago. A held one takes
no new requests for a while, so that it becomes idle; if it does not, it serves for as long again,
and is then closed to requests for twice the time, so that requests for it wait no longer than
requests for its room. All of this runs on the event loop, except loading and closing, which take a
thread each.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias

from core.errors import CoreError
from core.extensions import MemoryReporting
from core.protocols import Capability
from core_server.questions import NamedQuestion
from core_server.served import Served


@dataclass(frozen=True, slots=True)
class Loadable:
    """A model that ``load`` loads at first use, on a thread.

    ``size_bytes`` is its memory as estimated from its files; after a load, the measured size
    counts.
    """

    name: str
    load: Callable[[], Served]
    backend: str = ""
    model_type: str = ""
    size_bytes: int = 0


@dataclass(eq=False, slots=True)
class Shelf:
    """A name with its model, if it is loaded, and the requests that hold it or wait for it.

    ``leaving`` counts the loads that wait for it to be unloaded; ``counted`` are the counters of
    its queues that were closed.
    """

    name: str
    backend: str
    model_type: str
    loadable: Loadable | None
    served: Served | None = None
    bytes_: int = 0
    holders: int = 0
    leaving: int = 0
    used: int = 0
    loads: int = 0
    loading: asyncio.Task[None] | None = None
    waiting: deque[asyncio.Future[Served]] = field(default_factory=deque)
    counted: Counter[str] = field(default_factory=Counter)
    since: int = field(default_factory=lambda: int(time.time()))

    @property
    def open(self) -> bool:
        """True if a request may take the model at once."""
        return self.served is not None and not self.leaving


_Leaving: TypeAlias = tuple[Shelf, Served]
_PATIENCE = 1.0  # seconds for which a model is closed to new requests at first
_HELD: ContextVar[list[Shelf]] = ContextVar("models that this request holds")


class Models:
    """The shelves of a server in their order; ``limit`` is in bytes, for all models together."""

    def __init__(self, offered: Sequence[Served | Loadable], limit: int | None = None) -> None:
        if not offered:
            raise ValueError("No models given: a server needs at least one.")
        self.shelves = {one.name: _shelf(one) for one in offered}
        if len(self.shelves) < len(offered):
            raise ValueError("Two of the models have the same name. Give each its own.")
        self._limit = limit
        self._turn = asyncio.Lock()  # one is loaded at a time; not held while waiting for room
        self._claimed = 0  # bytes reserved for models that are not loaded yet
        self._freed = asyncio.Event()
        self._clock = itertools.count(1)
        self._shrinking: set[asyncio.Task[None]] = set()

    def check(self, questions: Iterable[NamedQuestion]) -> None:
        """Raise `core.TaskError` for questions that the only model, if loaded, cannot answer."""
        [first, *others] = self.shelves.values()
        if first.served is not None and not others:
            for question in questions:
                question.check(first.served.model)

    @contextmanager
    def holding(self) -> Iterator[Callable[[], None]]:
        """Hold the models taken in this context until the yielded function is called."""
        token = _HELD.set([])
        try:
            yield self.releasing()
        finally:
            _HELD.reset(token)

    def releasing(self) -> Callable[[], None]:
        """Return a function that releases the models taken in this context, once."""
        shelves = _HELD.get()
        return lambda: self._release(shelves)

    @contextmanager
    def held_meanwhile(self) -> Iterator[None]:
        """Hold the models taken in this context until its end."""
        with self.holding() as release:
            try:
                yield
            finally:
                release()

    async def take(self, name: str) -> Served:
        """Return the model of this name, loaded. Raises KeyError, and the errors of loading it."""
        shelf = self.shelves[name]
        shelf.used = next(self._clock)
        if shelf.open:
            shelf.holders += 1
            assert shelf.served is not None
            served = shelf.served
        else:
            served = await self._wait(shelf)
        _HELD.get().append(shelf)
        return served

    async def close(self) -> None:
        """Close all models, after those that are being loaded; nobody may hold one."""
        self._freed.set()
        for shelf in self.shelves.values():
            if shelf.loading is not None:
                await shelf.loading
        for task in self._shrinking:
            task.cancel()
        await asyncio.gather(*self._shrinking, return_exceptions=True)
        for shelf in self.shelves.values():
            await self._unload(*self._taken_off([shelf]))

    # ------------------------------------------------------------------ holding, waiting

    async def _wait(self, shelf: Shelf) -> Served:
        waiter: asyncio.Future[Served] = asyncio.get_running_loop().create_future()
        shelf.waiting.append(waiter)
        self._begin(shelf)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release([shelf])  # it was handed out to a request that has left
            raise

    def _release(self, shelves: list[Shelf]) -> None:
        for shelf in shelves:
            shelf.holders -= 1
            shelf.used = next(self._clock)
        shelves.clear()
        self._freed.set()

    def _begin(self, shelf: Shelf) -> None:
        """Load a model that requests wait for, unless it is loaded or loading."""
        if shelf.waiting and shelf.served is None and shelf.loading is None:
            shelf.loading = asyncio.create_task(self._load(shelf))

    def _hand_out(self, shelf: Shelf, error: Exception | None = None) -> None:
        waiting, shelf.waiting = shelf.waiting, deque()
        for waiter in waiting:
            if waiter.done():
                continue
            if error is not None or shelf.served is None:
                waiter.set_exception(error or RuntimeError("The model is not loaded."))
            else:
                shelf.holders += 1
                waiter.set_result(shelf.served)

    # ------------------------------------------------------------------ loading, unloading

    async def _load(self, shelf: Shelf) -> None:
        """Load a model for all requests that wait. Does not raise: they get the error."""
        error: Exception | None = None
        needed = shelf.bytes_
        try:
            leaving = await self._room(needed, wanted=shelf)
            if leaving is not None:
                try:
                    async with self._turn:
                        await self._unload(*leaving)
                        await self._take_in(shelf)
                finally:
                    self._claimed -= needed
        except Exception as failed:  # noqa: BLE001 - raised in the requests that wait
            error = failed
        shelf.loading = None
        self._hand_out(shelf, error)
        self._freed.set()
        if self._victims(0, shelf)[0]:  # it took more than estimated
            task = asyncio.create_task(self._shrink(shelf))
            self._shrinking.add(task)
            task.add_done_callback(self._shrinking.discard)

    async def _shrink(self, but: Shelf) -> None:
        leaving = await self._room(0, but=but)
        async with self._turn:
            await self._unload(*leaving or ())

    async def _room(
        self, needed: int, *, wanted: Shelf | None = None, but: Shelf | None = None
    ) -> list[_Leaving] | None:
        """Return the models to unload for ``needed`` bytes, off their shelves, once they are idle.

        The bytes are claimed then. None if no request waits for the ``wanted`` one any more.
        """
        patience = _PATIENCE
        while wanted is None or not all(waiter.done() for waiter in wanted.waiting):
            for closed in (True, False):
                leaving = await self._claim(needed, but, patience, closed)
                if leaving is not None:
                    return leaving
            patience *= 2
        return None

    async def _claim(
        self, needed: int, but: Shelf | None, patience: float, closed: bool
    ) -> list[_Leaving] | None:
        """Return the same within ``patience`` seconds, else None.

        ``closed``: the models take no new requests meanwhile.
        """
        shut: set[Shelf] = set()
        try:
            async with asyncio.timeout(patience):
                while True:
                    victims, enough = self._victims(needed, but)
                    rest = not any(shelf.holders for shelf in victims)
                    if rest and (enough or not self._claimed):
                        self._claimed += needed
                        return self._taken_off(victims)
                    for shelf in set(victims) - shut if closed else ():
                        shelf.leaving += 1
                        shut.add(shelf)
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError:
            return None
        finally:
            for shelf in shut:
                self._open_again(shelf)

    def _open_again(self, shelf: Shelf) -> None:
        shelf.leaving -= 1
        if shelf.open:
            self._hand_out(shelf)
        self._begin(shelf)

    def _victims(self, needed: int, but: Shelf | None) -> tuple[list[Shelf], bool]:
        """Return the models to unload for ``needed`` bytes, and whether that makes enough room.

        If not, all are unloaded: a model larger than the limit is served alone.
        """
        if self._limit is None:
            return [], True
        taken = self._claimed + sum(shelf.bytes_ for shelf in self._loaded())
        victims = []
        for shelf in sorted(self._loaded(), key=lambda shelf: (shelf.holders > 0, shelf.used)):
            if taken + needed <= self._limit:
                break
            if shelf is not but and shelf.loadable is not None:
                victims.append(shelf)
                taken -= shelf.bytes_
        return victims, taken + needed <= self._limit

    def _loaded(self) -> list[Shelf]:
        return [shelf for shelf in self.shelves.values() if shelf.served is not None]

    @staticmethod
    def _taken_off(shelves: Sequence[Shelf]) -> list[_Leaving]:
        leaving = []
        for shelf in shelves:
            if shelf.served is not None:
                leaving.append((shelf, shelf.served))
                shelf.served = None
        return leaving

    @staticmethod
    async def _unload(*leaving: _Leaving) -> None:
        for shelf, served in leaving:
            await asyncio.to_thread(served.close)
            shelf.counted.update(served.counted())

    async def _take_in(self, shelf: Shelf) -> None:
        loadable = shelf.loadable
        assert loadable is not None
        others = [other for other in self._loaded() if other.backend == loadable.backend]
        before = max((_reported(other) for other in others), default=0)
        shelf.served = await asyncio.to_thread(loadable.load)
        shelf.model_type = shelf.served.model.model_type
        shelf.loads += 1
        shelf.bytes_ = max(loadable.size_bytes, _reported(shelf) - before)


def _shelf(offered: Served | Loadable) -> Shelf:
    if isinstance(offered, Loadable):
        kind, size = offered.model_type, offered.size_bytes
        return Shelf(offered.name, offered.backend, kind, offered, bytes_=size)
    kind = offered.model.model_type
    shelf = Shelf(offered.name, offered.backend, kind, None, offered)
    shelf.loads, shelf.bytes_ = 1, _reported(shelf)
    return shelf


def _reported(shelf: Shelf) -> int:
    """Return the memory that a model's library reports, for all its models together; 0 if none."""
    if shelf.served is None or Capability.MEMORY_REPORTING not in shelf.served.capabilities:
        return 0
    model: object = shelf.served.model
    try:
        return model.memory().active_bytes if isinstance(model, MemoryReporting) else 0
    except CoreError:
        return 0
