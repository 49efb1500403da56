"""Base class of loaded models: unsupported operations, open and closed state, metrics by thread."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from core import log
from core.errors import ModelClosedError, UnsupportedOperationError
from core.kit.operations import TextModelOperations
from core.kit.support import unsupported
from core.option_docs import all_options_named
from core.options import GenerateConfig, resolve
from core.protocols import Capability
from core.types import GenerateMetrics


class TextModelBase(TextModelOperations):
    """A `TextModel` without operations; subclasses implement the ones they support.

    A subclass overrides ``classify``, or ``do_classify``, which gets its options resolved.
    Every other operation checks its options, so that an invalid one is an error here as everywhere,
    then raises `UnsupportedOperationError` with the names of the backends that support it.
    ``refusals`` are the backends that `core.load_model` tried before this model's and that do not
    support the model, each with its reason. The options that a subclass's methods take are added
    to their docstrings.
    """

    refusals: tuple[tuple[str, str], ...] = ()

    def __init_subclass__(cls, **keywords: object) -> None:
        super().__init_subclass__(**keywords)
        all_options_named(cls)

    def __init__(self, backend: str) -> None:
        self._backend = backend
        self._closed = False
        self._closing = threading.RLock()  # a signal handler may call close() within close()
        self._finished = threading.local()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<{type(self).__name__} backend={self._backend!r} {state}>"

    @property
    def metrics(self) -> GenerateMetrics:
        """The metrics of the last call that this thread finished; all zero before the first."""
        return getattr(self._finished, "metrics", GenerateMetrics())

    def resolve_request(
        self,
        capability: Capability,
        operation: str,
        known: type,
        config: GenerateConfig | None,
        options: object,
    ) -> GenerateConfig:
        """Return the options of a call. Raises for invalid ones, and what ``refuse_unsupported`` raises."""
        self.check_open()
        request = resolve(config, options, known, operation)
        self.refuse_unsupported(request, capability)
        return request

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for options that the backend does not support: for subclasses."""

    def unsupported(self, capability: Capability) -> UnsupportedOperationError:
        """Return the error of an operation without an implementation."""
        return unsupported(capability, self._backend, self.refusals)

    def check_open(self) -> None:
        """Raise `ModelClosedError` after ``close()``."""
        if self._closed:
            raise ModelClosedError

    def record(self, metrics: GenerateMetrics) -> None:
        """Store and log the metrics of a call that this thread has finished."""
        self._finished.metrics = metrics
        log.called(self, self._backend, metrics)

    def release(self) -> None:
        """Free the model's resources: for subclasses; called once, by the first ``close()``."""

    def close(self) -> None:
        """Free the model's memory. Closing twice is fine; the second does not wait for the first.

        ``release`` runs without the lock: it waits for threads whose finalizers may call this.
        """
        with self._closing:
            first, self._closed = not self._closed, True
        if first:
            self.release()
            log.closed(self, self._backend)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        self.close()
