"""What goes wrong on a cluster, and nowhere else."""

from __future__ import annotations

import core


class ActorLoadError(core.ModelError):
    """An actor could not load its model: the job ends, and the message has the reason."""


class PoisonedRowError(core.RequestError):
    """A row was left out, of which ``deaths`` processes died."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        super().__init__(f"{deaths} processes died of this row, and it was left out.")
