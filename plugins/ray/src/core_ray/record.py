"""Record of an actor's unfinished work, outside its process, to know what the process died of.

Ray restarts an actor's process with the same batch, without any other information.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class Record:
    """Counts by actor and work; a Ray actor itself."""

    def __init__(self) -> None:
        self._begun: Counter[tuple[str, str]] = Counter()

    def begun(self, actor: str, what: str) -> int:
        """Record a beginning; return the number of beginnings without an end."""
        self._begun[actor, what] += 1
        return self._begun[actor, what]

    def ended(self, actor: str, what: str) -> None:
        """Record an end."""
        self._begun.pop((actor, what), None)


@dataclass(frozen=True, slots=True)
class Reporter:
    """A client of the record for the actor that it runs in."""

    record: Any

    @classmethod
    def start(cls) -> Reporter:
        """Return a reporter with a new record, on the driver's node, for the life of the job."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Record)
        return cls(kind.options(scheduling_strategy=here).remote())

    def begun(self, what: str) -> int:
        """See `Record.begun`."""
        actor = ray.get_runtime_context().get_actor_id()
        count: int = ray.get(self.record.begun.remote(actor, what))
        return count

    def ended(self, what: str) -> None:
        """See `Record.ended`; it is not waited for, and later calls arrive later."""
        self.record.ended.remote(ray.get_runtime_context().get_actor_id(), what)
