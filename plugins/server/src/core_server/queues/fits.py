"""Questions made ready on one model: equal tasks are fitted, and heads checked, once."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from core.options import GenerateConfig
from core.protocols import TextModel
from core_server.questions import HeadQuestion, Question
from core_server.threads import Once
from core_tasks.task import Task
from core_wires.byte_cache import ByteCache

_MOST = 16 << 20  # bytes of cached tasks
_CONCURRENT = 4  # fits; others wait


@dataclass(slots=True)
class _Fit:
    """A fit that runs or waits for its thread, and how many requests wait for it."""

    done: asyncio.Future[Question]
    work: Once[Question]
    cancel: threading.Event
    waiting: int = 0


class FittedTasks:
    """A cache of fitted tasks and of checked heads.

    A fit that no request waits for any more is cancelled.
    """

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._fitted: ByteCache[Task, Task] = ByteCache(_MOST)
        self._heads: dict[HeadQuestion, HeadQuestion] = {}  # as many as the server has
        self._fits: dict[Question, _Fit] = {}
        self._threads = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="core-server-fit")

    async def at_level(self, question: Question, level: str) -> Question:
        """Return the question ready to run on the model.

        A head is checked; for "content-free", a task is the result of `core_tasks.Task.fit_prior`.
        """
        if isinstance(question, Task) and level == "raw":
            return question
        ready = self._ready(question)
        if ready is not None:
            return ready
        fit = self._fits.get(question) or self._begin(question)
        fit.waiting += 1
        try:
            return await asyncio.shield(fit.done)
        finally:
            fit.waiting -= 1
            if not fit.waiting:
                self._end(question, fit)

    def _ready(self, question: Question) -> Question | None:
        if isinstance(question, Task):
            return self._fitted.get(question)
        return self._heads.get(question)

    def _begin(self, question: Question) -> _Fit:
        cancel = threading.Event()

        def fitting() -> Question:
            if not isinstance(question, Task):
                head = self._heads[question] = question.on(self._model)
                return head
            fitted = question.fit_prior(self._model, config=GenerateConfig(cancel=cancel))
            self._fitted.put(question, fitted)
            return fitted

        work = Once(fitting)
        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        fit = self._fits[question] = _Fit(done, work, cancel)
        return fit

    def _end(self, question: Question, fit: _Fit) -> None:
        fit.cancel.set()
        fit.done.cancel()
        fit.work.drop()
        if self._fits.get(question) is fit:
            del self._fits[question]

    def close(self) -> None:
        """Cancel running fits, and wait for their threads."""
        for fit in [*self._fits.values()]:
            fit.cancel.set()
        self._threads.shutdown(cancel_futures=True)
