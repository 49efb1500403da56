"""``classify_iter`` over core's API: one request for each block of prompts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from itertools import islice

from core.kit.base import RequestClock
from core.kit.support import block_sizes, checked_prompts
from core.options import GenerateConfig
from core.types import ClassifyResult, GenerateMetrics
from core_remote.contract.plans import CallPlan
from core_remote.counting import followed

_FIRST, _LARGEST = 32, 512  # prompts of a request: the first answers come soon

Classification = Callable[
    [Sequence[str], GenerateConfig, RequestClock], CallPlan[list[ClassifyResult]]
]


class Results:
    """A call of ``classify_iter``: read once, by a thread or a task."""

    def __init__(
        self,
        prompts: Iterable[str],
        config: GenerateConfig,
        classification: Classification,
        record: Callable[[GenerateMetrics], None],
    ) -> None:
        self._prompts, self._config = prompts, config
        self._classification, self._record = classification, record
        self.metrics = GenerateMetrics()

    def read(self) -> Iterator[ClassifyResult]:
        """Yield the results in input order."""
        for block in self._blocks():
            plan = self._classification(block, self._config, self._clock())
            results = plan.run()
            self._count(plan)
            yield from results

    async def read_async(self) -> AsyncGenerator[ClassifyResult, None]:
        """Yield the same, for a task."""
        for block in self._blocks():
            plan = self._classification(block, self._config, self._clock())
            results = await plan.run_async()
            self._count(plan)
            for result in results:
                yield result

    def _blocks(self) -> Iterator[list[str]]:
        rows, done = iter(self._prompts), 0
        for size in block_sizes(_FIRST, _LARGEST):
            block = checked_prompts("classify_iter", list(islice(rows, size)), done)
            if not block:
                return
            done += len(block)
            yield block

    def _clock(self) -> RequestClock:
        """Return the clock of one block, without the time that the reader takes in between."""
        return RequestClock(self._config, self.metrics.total_seconds)

    def _count(self, plan: CallPlan[object]) -> None:
        self.metrics = followed(self.metrics, plan.metrics)
        self._record(self.metrics)
