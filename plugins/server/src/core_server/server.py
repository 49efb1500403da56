"""The state that all routes share: the models, the places of requests, and the threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core_server.models import Loadable, Models
from core_server.places import Places
from core_server.questions import NamedQuestion, named_questions
from core_server.served import Served
from core_server.settings import Settings, check_aliases
from core_server.threads import Threads
from core_tasks.deciding import Path
from core_tasks.task import Task
from core_wires import systemone
from core_wires.errors import OPENAI, Dialect, unknown_model


class Server:
    """The served models, tasks and heads by name, with the places and threads of requests."""

    def __init__(
        self,
        served: Sequence[Served | Loadable],
        settings: Settings,
        tasks: Mapping[str, Task | Path] | None = None,
        heads: Mapping[str, Any] | None = None,
    ) -> None:
        self.models = Models(served, settings.memory_limit)
        self.questions: Mapping[str, NamedQuestion] = named_questions(
            tasks, heads, [*self.models.shelves]
        )
        check_aliases(settings.aliases, [*self.models.shelves])
        self.models.check(self.questions.values())
        self.settings = settings
        self.places = Places(settings)
        self.threads = Threads()

    async def model(self, dialect: Dialect, name: str) -> Served:
        """Return the model of this name, loaded; the first for the aliases that clients send by
        default. The request holds it until it is answered."""
        shelves = self.models.shelves
        if name not in shelves:
            usual = next(iter(shelves)) if name in systemone.ALIASES else name
            own = self.settings.aliases.get(name, usual)
            if own not in shelves:
                raise unknown_model(dialect, name, [*shelves, *self.settings.aliases])
            name = own
        return await self.models.take(name)

    async def model_or_first(self, name: str) -> Served:
        """Return the model of this name; the first if the name is empty (core's and vLLM's API)."""
        return await self.model(OPENAI, name or next(iter(self.models.shelves)))

    async def close(self) -> None:
        """Close the models, then the threads."""
        await self.models.close()
        self.threads.close()
