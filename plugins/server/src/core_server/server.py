"""The state that all routes share: the models, the places of requests, and the threads."""

from __future__ import annotations

from collections.abc import Sequence

from core_server.models import Loadable, Models
from core_server.places import Places
from core_server.served import Served
from core_server.settings import Settings
from core_server.threads import Threads
from core_wires import systemone
from core_wires.errors import OPENAI, Dialect, unknown_model


class Server:
    """The served models by name, with the places and threads of their requests."""

    def __init__(self, served: Sequence[Served | Loadable], settings: Settings) -> None:
        self.models = Models(served, settings.memory_limit)
        self.settings = settings
        self.places = Places(settings)
        self.threads = Threads()

    async def model(self, dialect: Dialect, name: str) -> Served:
        """Return the model of this name, loaded; the first for the aliases that clients send by
        default. The request holds it until it is answered."""
        if name in systemone.ALIASES and name not in self.models.shelves:
            name = next(iter(self.models.shelves))
        if name not in self.models.shelves:
            raise unknown_model(dialect, name)
        return await self.models.take(name)

    async def model_or_first(self, name: str) -> Served:
        """Return the model of this name; the first if the name is empty (core's and vLLM's API)."""
        return await self.model(OPENAI, name or next(iter(self.models.shelves)))

    async def close(self) -> None:
        """Close the models, then the threads."""
        await self.models.close()
        self.threads.close()
