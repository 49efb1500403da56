"""The target of a run: the backend that is checked, its model, and its load options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from core.choosing import unavailability
from core.errors import BackendUnavailableError, CoreError
from core.registry import REGISTRY
from core_conformance.checking.material import Material
from core_conformance.checking.subject import Effort, Subject
from core_conformance.reference import Reference

if TYPE_CHECKING:
    from core.protocols import Backend
    from core_conformance.checking.check import Check


class CannotStart(CoreError):
    """No check can run: the backend does not load the model that it was given."""


@dataclass(frozen=True, slots=True)
class Target:
    """A backend's name, an absolute path of a model, and load options.

    ``material`` is what it is asked with, and ``effort`` how far the checks go; ``adapters`` is a
    folder with adapters of the model.
    """

    backend: str
    model: str
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    material: Material | None = None
    effort: Effort = field(default_factory=Effort)
    adapters: str | None = None

    def found(self) -> Backend:
        """Return the backend, available or not. Raises `BackendError`.

        ``reference``, the suite's own, is known here only: it loads no model of anybody's.
        """
        if self.backend == Reference.name:
            know_reference()
        return REGISTRY.get(self.backend)

    def subject(self) -> Subject:
        """Return the backend with the model. Raises `BackendError` when it cannot run here."""
        backend = self.found()
        if reason := unavailability(backend):
            raise BackendUnavailableError(self.backend, reason)
        return Subject(
            backend, self.model, self.options, self.effort, self.adapters, keeps_files=True
        )


def know_reference() -> None:
    """Have this process's registry find the reference, which no distribution registers."""
    if Reference.name not in REGISTRY.names():
        REGISTRY.register(Reference())


def applicable(protocol: int) -> tuple[Check, ...]:
    """Return the checks whose ``since`` is at most this protocol version."""
    from core_conformance.checking.check import all_checks

    return tuple(check for check in all_checks().values() if check.since <= protocol)
