"""Base of all remote models, for any API: facts, capabilities, closing."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass

from core.kit.base import TextModelBase
from core.kit.support import refuse_options
from core.options import GenerateConfig
from core.protocols import Capability
from core.types import Choice, ModelInfo
from core_remote.connection import Connection


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The facts that a probe has shown about a model.

    ``honours`` are the sampling options that it supports.
    """

    info: ModelInfo
    capabilities: frozenset[Capability]
    honours: frozenset[str]
    choices: tuple[Choice, ...]


class RemoteModel(TextModelBase):
    """A model on a server. See `core.TextModel` for the contract of every method.

    Its class has only the methods of the optional protocols that the server's model offers.
    """

    def __init__(self, backend: str, connection: Connection, facts: ModelFacts) -> None:
        super().__init__(backend)
        self._connection, self._facts = connection, facts
        # Also when nobody calls close(), and when the program ends.
        self._finalizer = weakref.finalize(self, connection.close)

    @property
    def info(self) -> ModelInfo:
        """Facts about the model, as reported by its server."""
        return self._facts.info

    @property
    def model_type(self) -> str:
        """The architecture's name, as reported by its server."""
        return self._facts.info.architecture

    def declared(self) -> frozenset[Capability]:
        """Return the capabilities of the server's model, as its probe has shown."""
        return self._facts.capabilities

    def choices(self) -> Sequence[Choice]:
        """Return the settings chosen for the model, each with its reason."""
        self.check_open()
        return self._facts.choices

    def release(self) -> None:
        """Close the connection, which ends this model's work on the server."""
        self._finalizer.detach()
        self._connection.close()

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` after ``close()``, and in a fork."""
        self.check_open()
        self._connection.check_usable()

    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: object
    ) -> GenerateConfig:
        """Return the options of a call. Raises for invalid and unsupported ones."""
        self.check_usable()
        return super().resolve_request(operation, config, options)

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for operations and options that the server's model does not support."""
        offered = self._facts.capabilities
        # A model of label sentences classifies, but only with labels: `refuse_options` checks that.
        compared = capability is Capability.CLASSIFY and Capability.LABEL_SENTENCES in offered
        if capability not in offered and not compared:
            raise self.unsupported(capability)
        refuse_options(request, capability, self._backend, offered, honours=self._facts.honours)
