"""The tasks of one model that were brought to a level, so that a prior is fitted once."""

from __future__ import annotations

import asyncio

from core.protocols import TextModel
from core.tasks.task import Task

_MOST = 256  # tasks that are kept


class Tasks:
    """Tasks by what they ask, the oldest dropped first."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._fitted: dict[Task, Task] = {}

    async def at_level(self, task: Task, level: str) -> Task:
        """The task, and where L0 is asked what `core.Task.fit_prior` makes of it."""
        if level == "raw":
            return task
        if task not in self._fitted:
            fitted = await asyncio.to_thread(task.fit_prior, self._model)
            while len(self._fitted) >= _MOST:
                del self._fitted[next(iter(self._fitted))]
            self._fitted[task] = fitted
        return self._fitted[task]
