"""The questions of all clients on one model: those that are asked alike run in one call.

An idle queue starts at once. What arrives while a call runs is gathered for the next, which asks as
the request that waits longest does (with its labels, say), and takes from each request that is
asked alike in turn, so that one with hundreds of questions holds up no other. An answer does not
depend on its neighbours (a rule of the contract), so each client gets what it would have got alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from core.protocols import TextModel
from core.types import ClassifyResult, GenerateMetrics
from core_server.calls import Call, Labelled

Row = TypeVar("Row")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Asked(Generic[Result]):
    """The results of one request, in its order, and how many of its tokens no pass computed.

    Of a call that several requests shared, each is told the part that its questions are of it.
    """

    results: list[Result]
    cached_tokens: int


@dataclass(eq=False, slots=True)
class _Request:
    """One client's questions, asked alike. ``waiting`` are the places not asked yet."""

    rows: Sequence[Any]
    call: Call[Any, Any]
    done: asyncio.Future[Asked[Any]]
    loop: asyncio.AbstractEventLoop
    waiting: deque[int] = field(default_factory=deque)
    results: dict[int, Any] = field(default_factory=dict)
    cached: float = 0.0
    gone: bool = False

    def finish(self, error: BaseException | None = None) -> None:
        """Hand the results to the event loop that waits for them."""
        results = [self.results[place] for place in sorted(self.results)]
        found = Asked(results, round(self.cached))
        with suppress(RuntimeError):  # the loop has ended, and with it who waited
            self.loop.call_soon_threadsafe(_settle, self.done, found, error)


def _settle(
    done: asyncio.Future[Asked[Any]],
    found: Asked[Any],
    error: BaseException | None,
) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(found)
    else:
        done.set_exception(error)


class QuestionQueue:
    """One thread that asks a model what its clients want to know.

    ``calls`` and ``questions`` count what was asked, ``prompt_tokens`` and ``cached_tokens`` what
    that took.
    """

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._changed = threading.Condition()
        self._requests: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._cancel = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self.calls = self.questions = self.prompt_tokens = self.cached_tokens = 0

    async def ask(self, prompts: Sequence[str], labels: Sequence[str]) -> Asked[ClassifyResult]:
        """One result for each prompt; an abandoned wait takes its questions back."""
        return await self.run(prompts, Labelled(tuple(labels)))

    async def run(self, rows: Sequence[Row], call: Call[Row, Result]) -> Asked[Result]:
        """The same for any other call: one result for each row."""
        if not rows:
            return Asked([], 0)
        loop = asyncio.get_running_loop()
        request = _Request(rows, call, loop.create_future(), loop)
        request.waiting.extend(range(len(rows)))
        self._put(request)
        try:
            return await request.done
        except asyncio.CancelledError:
            self._take_back(request)
            raise

    def close(self) -> None:
        """Stop the thread behind the call that runs; nobody may be waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # ------------------------------------------------------------------ on the event loop

    def _put(self, request: _Request) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("The queue is closed.")
            self._requests.append(request)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="core-server", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _take_back(self, request: _Request) -> None:
        with self._changed:
            request.gone = True
            if request in self._requests:
                self._requests.remove(request)
            if self._running and all(each.gone for each in self._running):
                self._cancel.set()  # nobody waits for the call that runs

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        while (round_ := self._next_round()) is not None:
            self._answer(round_)

    def _next_round(self) -> list[tuple[_Request, int]] | None:
        """The questions of the next call, in turn from each request; None when it is over."""
        with self._changed:
            self._running = []
            self._changed.wait_for(lambda: self._requests or self._closed)
            if not self._requests:
                return None
            call = self._requests[0].call
            turns = deque(each for each in self._requests if each.call == call)
            taken: list[tuple[_Request, int]] = []
            while turns and len(taken) < call.most:
                request = turns.popleft()
                taken.append((request, request.waiting.popleft()))
                if request.waiting:
                    turns.append(request)

            # What is asked for whole waits for its answer alone; what is not, at the back.
            self._running = [*dict.fromkeys(request for request, _ in taken)]
            self._cancel = threading.Event()
            for each in self._running:
                self._requests.remove(each)
            self._requests.extend(each for each in self._running if each.waiting)
            return taken

    def _answer(self, round_: Sequence[tuple[_Request, int]]) -> None:
        rows = [request.rows[place] for request, place in round_]
        error: BaseException | None = None
        try:
            results = round_[0][0].call(self._model, rows, self._cancel)
            cached = self._counted(self._model.metrics, len(rows))
            for (request, place), result in zip(round_, results, strict=True):
                request.results[place] = result
                request.cached += cached
        except StopIteration as failed:  # which no future takes
            error = RuntimeError(f"A generator of the backend ended early: {failed!r}")
        except BaseException as failed:  # noqa: BLE001 - it is its clients' to hear
            error = failed
        for request in dict.fromkeys(request for request, _ in round_):
            if error is not None:
                with self._changed:
                    if request in self._requests:
                        self._requests.remove(request)
                request.finish(error)
            elif len(request.results) == len(request.rows):
                request.finish()

    def _counted(self, metrics: GenerateMetrics, questions: int) -> float:
        """Add a call to the counters. Returns the cached tokens of each of its questions."""
        self.calls, self.questions = self.calls + 1, self.questions + questions
        self.prompt_tokens += metrics.prompt_tokens
        self.cached_tokens += metrics.cached_prompt_tokens
        return metrics.cached_prompt_tokens / questions
