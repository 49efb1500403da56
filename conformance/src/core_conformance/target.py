"""Which backend is checked, and with which model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core import api
from core.choosing import unavailability
from core.errors import BackendUnavailableError, CoreError
from core_conformance.subject import Subject

if TYPE_CHECKING:
    from core.protocols import Backend
    from core_conformance.model import Check


class CannotStart(CoreError):
    """No check can run: the backend does not load the model that it was given."""


@dataclass(frozen=True, slots=True)
class Target:
    """A backend's name, an absolute path of a model, and load options."""

    backend: str
    model: str
    options: Mapping[str, object] = field(default_factory=dict)

    def found(self) -> Backend:
        """The backend, available or not. Raises `BackendError`."""
        return api.get_backend(self.backend)

    def subject(self) -> Subject:
        """The backend with the model. Raises `BackendError` when it cannot run here."""
        backend = self.found()
        if reason := unavailability(backend):
            raise BackendUnavailableError(self.backend, reason)
        return Subject(backend, self.model, self.options)


def applicable(protocol: int) -> tuple[Check, ...]:
    """The checks for a backend of this protocol version: those that count since then or before."""
    from core_conformance.registry import all_checks

    return tuple(check for check in all_checks().values() if check.since <= protocol)
