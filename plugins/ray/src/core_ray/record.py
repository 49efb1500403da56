"""What each actor has begun and not ended: kept outside of it, to know what its process died of.

Ray starts an actor's process again and hands it the same batch, and tells it of nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


class Record:
    """Counts by actor and by what it does: an actor of Ray's itself."""

    def __init__(self) -> None:
        self._begun: Counter[tuple[str, str]] = Counter()

    def begun(self, actor: str, what: str) -> int:
        """Note a beginning: the how manieth without an end."""
        self._begun[actor, what] += 1
        return self._begun[actor, what]

    def ended(self, actor: str, what: str) -> None:
        """Note an end."""
        self._begun.pop((actor, what), None)


@dataclass(frozen=True, slots=True)
class Reporter:
    """Tells the record what the actor does that this runs in."""

    record: Any

    @classmethod
    def start(cls) -> Reporter:
        """One with a new record, on the driver's node: it lives as long as the job does."""
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        kind = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(Record)
        return cls(kind.options(scheduling_strategy=here).remote())

    def begun(self, what: str) -> int:
        """See `Record.begun`."""
        actor = ray.get_runtime_context().get_actor_id()
        found: int = ray.get(self.record.begun.remote(actor, what))
        return found

    def ended(self, what: str) -> None:
        """See `Record.ended`; nobody waits for it, and what is told later is heard later."""
        self.record.ended.remote(ray.get_runtime_context().get_actor_id(), what)
