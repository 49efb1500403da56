"""The questions of all clients on one model: questions of equal calls run together.

An idle queue starts at once. Questions that arrive while a call runs wait for the next, which is
the call of the request that waits longest (for example, with its labels); it takes questions from
all requests of an equal call in turn, so that a request with hundreds does not delay the others. An
answer does not depend on the rest of its batch (a rule of the contract), so batching changes none.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from core.options import LABEL_SENTENCE
from core.protocols import TextModel
from core.types import ClassifyResult, GenerateMetrics
from core_server.queues.batch_calls import BatchCall, LabelCall
from core_server.threads import call_in_loop

Row = TypeVar("Row")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class QueueResults(Generic[Result]):
    """The results of one request, in its order, and the number of its cached tokens.

    If several requests shared a call, each is reported its share of the cached tokens.
    """

    results: list[Result]
    cached_tokens: int


@dataclass(eq=False, slots=True)
class _Entry:
    """One client's questions, of one call. ``waiting`` are the indices not run yet."""

    rows: Sequence[Any]
    call: BatchCall[Any, Any]
    done: asyncio.Future[QueueResults[Any]]
    loop: asyncio.AbstractEventLoop
    waiting: deque[int] = field(default_factory=deque)
    results: dict[int, Any] = field(default_factory=dict)
    cached: float = 0.0
    gone: bool = False

    def finish(self, error: BaseException | None = None) -> None:
        """Hand the results to the event loop that waits for them."""
        results = [self.results[index] for index in sorted(self.results)]
        call_in_loop(
            self.loop, _settle, self.done, QueueResults(results, round(self.cached)), error
        )


def _settle(
    done: asyncio.Future[QueueResults[Any]],
    results: QueueResults[Any],
    error: BaseException | None,
) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(results)
    else:
        done.set_exception(error)


class QuestionQueue:
    """A queue with one thread that runs the clients' questions on a model.

    ``counted`` are their counters, by the names of `core_server.routes.metrics`.
    """

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._changed = threading.Condition()
        self._entries: deque[_Entry] = deque()
        self._running: list[_Entry] = []
        self._cancel = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None
        self.counted: Counter[str] = Counter()

    async def ask(
        self, prompts: Sequence[str], labels: Sequence[str], label_sentence: str = LABEL_SENTENCE
    ) -> QueueResults[ClassifyResult]:
        """Return a result for each prompt; a cancelled task withdraws its questions."""
        return await self.run(prompts, LabelCall(tuple(labels), label_sentence))

    async def run(self, rows: Sequence[Row], call: BatchCall[Row, Result]) -> QueueResults[Result]:
        """Return the same for any other call: one result for each row."""
        if not rows:
            return QueueResults([], 0)
        loop = asyncio.get_running_loop()
        entry = _Entry(rows, call, loop.create_future(), loop)
        entry.waiting.extend(range(len(rows)))
        self._put(entry)
        try:
            return await entry.done
        except asyncio.CancelledError:
            self._take_back(entry)
            raise

    def close(self) -> None:
        """Stop the thread after the running call; no entry may be waiting."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # ------------------------------------------------------------------ on the event loop

    def _put(self, entry: _Entry) -> None:
        with self._changed:
            if self._closed:
                raise RuntimeError("The queue is closed.")
            self._entries.append(entry)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="core-server", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _take_back(self, entry: _Entry) -> None:
        with self._changed:
            entry.gone = True
            if entry in self._entries:
                self._entries.remove(entry)
            if self._running and all(entry.gone for entry in self._running):
                self._cancel.set()  # no entry waits for the running call

    # ------------------------------------------------------------------ on the thread

    def _run(self) -> None:
        while (round_ := self._next_round()) is not None:
            self._answer(round_)
            del round_  # its prompts and results, while the next one is waited for

    def _next_round(self) -> list[tuple[_Entry, int]] | None:
        """Return the questions of the next call, in turn from each entry.

        None once the queue is closed.
        """
        with self._changed:
            self._running = []
            self._changed.wait_for(lambda: self._entries or self._closed)
            if not self._entries:
                return None
            call = self._entries[0].call
            turns = deque(entry for entry in self._entries if entry.call == call)
            taken: list[tuple[_Entry, int]] = []
            while turns and len(taken) < call.most:
                entry = turns.popleft()
                taken.append((entry, entry.waiting.popleft()))
                if entry.waiting:
                    turns.append(entry)

            # Requests with questions left go to the back of the queue.
            self._running = [*dict.fromkeys(entry for entry, _ in taken)]
            self._cancel = threading.Event()
            for entry in self._running:
                self._entries.remove(entry)
            self._entries.extend(entry for entry in self._running if entry.waiting)
            return taken

    def _answer(self, round_: Sequence[tuple[_Entry, int]]) -> None:
        rows = [entry.rows[index] for entry, index in round_]
        error: BaseException | None = None
        try:
            results = round_[0][0].call(self._model, rows, self._cancel)
            cached = self._counted(self._model.metrics, len(rows))
            for (entry, index), result in zip(round_, results, strict=True):
                entry.results[index] = result
                entry.cached += cached
        except StopIteration as failed:  # a future cannot hold it
            error = RuntimeError(f"A generator of the backend ended early: {failed!r}")
        except BaseException as failed:  # noqa: BLE001 - raised in the requests
            error = failed
        for entry in dict.fromkeys(entry for entry, _ in round_):
            if error is not None:
                with self._changed:
                    if entry in self._entries:
                        self._entries.remove(entry)
                entry.finish(error)
            elif len(entry.results) == len(entry.rows):
                entry.finish()

    def _counted(self, metrics: GenerateMetrics, questions: int) -> float:
        """Add a call to the counters. Returns the cached tokens per question."""
        self.counted.update(
            decision_calls=1,
            decision_questions=questions,
            decision_prompt_tokens=metrics.prompt_tokens,
            decision_cached_tokens=metrics.cached_prompt_tokens,
        )
        return metrics.cached_prompt_tokens / questions
