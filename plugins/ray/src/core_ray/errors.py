"""Errors that only occur on a cluster."""

from __future__ import annotations

import core


class ActorLoadError(core.ModelError):
    """The error of an actor that could not load its model, which ends the job."""


class PoisonedRowError(core.RequestError):
    """The error of a row that was skipped because ``deaths`` processes died of it."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths
        super().__init__(f"Row skipped: {deaths} processes died while computing it.")
