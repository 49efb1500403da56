"""The fits of tasks on one model: equal tasks are fitted once and cached."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from core.options import GenerateConfig
from core.protocols import TextModel
from core_server.threads import Once
from core_tasks.task import Task
from core_wires.byte_cache import ByteCache

_MOST = 16 << 20  # bytes of cached tasks
_CONCURRENT = 4  # fits; others wait


@dataclass(slots=True)
class _Fit:
    """A fit that runs or waits for its thread, and how many requests wait for it."""

    done: asyncio.Future[Task]
    work: Once[Task]
    cancel: threading.Event
    waiting: int = 0


class FittedTasks:
    """A cache of fitted tasks. A fit that no request waits for any more is cancelled."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._fitted: ByteCache[Task, Task] = ByteCache(_MOST)
        self._fits: dict[Task, _Fit] = {}
        self._threads = ThreadPoolExecutor(_CONCURRENT, thread_name_prefix="core-server-fit")

    async def at_level(self, task: Task, level: str) -> Task:
        """Return the task; for L0, the result of `core_tasks.Task.fit_prior`."""
        if level == "raw":
            return task
        fitted = self._fitted.get(task)
        if fitted is not None:
            return fitted
        fit = self._fits.get(task) or self._begin(task)
        fit.waiting += 1
        try:
            return await asyncio.shield(fit.done)
        finally:
            fit.waiting -= 1
            if not fit.waiting:
                self._end(task, fit)

    def _begin(self, task: Task) -> _Fit:
        cancel = threading.Event()

        def fitting() -> Task:
            config = GenerateConfig(cancel=cancel)
            fitted = task.fit_prior(self._model, config=config)
            self._fitted.put(task, fitted)
            return fitted

        work = Once(fitting)
        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        fit = self._fits[task] = _Fit(done, work, cancel)
        return fit

    def _end(self, task: Task, fit: _Fit) -> None:
        fit.cancel.set()
        fit.done.cancel()
        fit.work.drop()
        if self._fits.get(task) is fit:
            del self._fits[task]

    def close(self) -> None:
        """Cancel running fits, and wait for their threads."""
        for fit in [*self._fits.values()]:
            fit.cancel.set()
        self._threads.shutdown(cancel_futures=True)
