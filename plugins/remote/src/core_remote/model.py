"""What every remote model has, whatever its server's wire: what it is, what it offers, its end."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from core.base import TextModelBase
from core.options import (
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
    resolve_classify,
    resolve_generate,
    resolve_request,
    resolve_template,
)
from core.protocols import Capability
from core.support import REFUSABLE, refuse_options, unsupported
from core.types import Choice, ModelInfo
from core_remote.connection import Connection


@dataclass(frozen=True, slots=True)
class Facts:
    """What a probe has shown of a model.

    ``refused`` are sampling options that are not honoured there.
    """

    info: ModelInfo
    capabilities: frozenset[Capability]
    refused: frozenset[str]
    choices: tuple[Choice, ...]


class RemoteModel(TextModelBase):
    """A model behind a server. See `core.TextModel` for what every method promises.

    Its class has the methods of those optional protocols alone that the server's model offers.
    """

    def __init__(self, backend: str, connection: Connection, facts: Facts) -> None:
        super().__init__(backend)
        self._connection, self._facts = connection, facts
        # Also when nobody calls close(), and when the program ends.
        self._finalizer = weakref.finalize(self, connection.close)

    @property
    def info(self) -> ModelInfo:
        """Facts about the model, as its server tells them."""
        return self._facts.info

    @property
    def model_type(self) -> str:
        """The architecture's name, as its server tells it."""
        return self._facts.info.architecture

    def declared(self) -> frozenset[Capability]:
        """What the server's model offers, as its probe has shown."""
        return self._facts.capabilities

    def choices(self) -> Sequence[Choice]:
        """Where the model is, and what was chosen for it there."""
        self.check_open()
        return self._facts.choices

    def release(self) -> None:
        """Leave the server, which ends what it still does for this model."""
        self._finalizer.detach()
        self._connection.close()

    def check_usable(self) -> None:
        """Raise `core.ModelClosedError` after ``close()``, and in a fork."""
        self.check_open()
        self._connection.check_usable()

    def checked(
        self,
        operation: Capability,
        config: GenerateConfig | None,
        options: GenerateOptions,
        name: str = "",
    ) -> GenerateConfig:
        """The options of a request. Raises for wrong ones, and for what is not offered."""
        self.check_usable()
        return self._offered(operation, resolve_generate(config, options, name or operation.value))

    def checked_classify(
        self, operation: Capability, config: GenerateConfig | None, options: ClassifyOptions
    ) -> GenerateConfig:
        """The same of ``classify`` and ``classify_iter``."""
        self.check_usable()
        return self._offered(operation, resolve_classify(config, options))

    def checked_request(
        self,
        operation: Capability,
        config: GenerateConfig | None,
        options: RequestOptions,
        name: str = "",
    ) -> GenerateConfig:
        """The same of ``score`` and the like."""
        self.check_usable()
        return self._offered(operation, resolve_request(config, options, name or operation.value))

    def checked_template(
        self, config: GenerateConfig | None, options: TemplateOptions
    ) -> GenerateConfig:
        """Return the options of ``render_chat``. Raises like `checked`."""
        self.check_usable()
        return self._offered(Capability.TOKENIZING, resolve_template(config, options))

    def _offered(self, operation: Capability, config: GenerateConfig) -> GenerateConfig:
        offered: Collection[Capability] = self._facts.capabilities
        if operation not in offered:
            raise unsupported(operation, self._backend, self.refusals)
        honours = REFUSABLE - self._facts.refused
        refuse_options(config, operation, self._backend, offered, honours=honours)
        return config
