"""Base classes of backends and of loaded models.

A model's base has the unsupported operations, its open or closed state, and metrics by thread.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from core import log
from core.errors import BackendUnavailableError, ModelClosedError
from core.kit.support import refuse_load_options, unsupported
from core.option_docs import all_options_named
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    LoadConfig,
    resolve_classify,
    resolve_generate,
)
from core.protocols import PROTOCOL_VERSION, Capability, TokenStream
from core.types import BatchResult, ClassifyResult, Conversation, GenerateMetrics


class BackendBase(ABC):
    """A `core.Backend` of this version of the contract, without `load_model`.

    ``own_options``: the backend's load options, by name, each with a description.
    """

    name: str
    protocol = PROTOCOL_VERSION
    capabilities: frozenset[Capability]
    formats: frozenset[str]
    own_options: Mapping[str, str] = {}

    def available(self) -> bool:
        """Return True if the backend can run here."""
        return self.unavailable_reason() is None

    @abstractmethod
    def unavailable_reason(self) -> str | None:
        """Return the reason why it cannot run here, and what to do; None if it can."""

    def check_available(self) -> None:
        """Raise `core.BackendUnavailableError` if the backend cannot run here."""
        reason = self.unavailable_reason()
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)

    def check_options(self, config: LoadConfig) -> None:
        """Raise `core.OptionError` for a load option that the backend does not support."""
        refuse_load_options(config, self.name, self.capabilities, self.own_options)


def check_process(process: int) -> None:
    """Raise `ModelClosedError` in a fork of the process, by id, that loaded the model."""
    if os.getpid() != process:
        raise ModelClosedError(
            "The model was loaded before a fork and cannot be used in the child process. Load "
            "it again with core.load_model()."
        )


class TextModelBase:
    """A `TextModel` without operations; subclasses override the ones they support.

    Each operation checks its options first, so that an invalid one is an error here as everywhere,
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

    def generate(
        self,
        prompt: str,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        """Raise `UnsupportedOperationError`."""
        self.check_open()
        resolve_generate(config, options)
        raise unsupported(Capability.GENERATE, self._backend, self.refusals)

    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        """Raise `UnsupportedOperationError`."""
        self.check_open()
        resolve_generate(config, options, "chat")
        raise unsupported(Capability.CHAT, self._backend, self.refusals)

    def classify(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Raise `UnsupportedOperationError`."""
        self.check_open()
        resolve_classify(config, options)
        raise unsupported(Capability.CLASSIFY, self._backend, self.refusals)

    def batch_generate(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> list[BatchResult]:
        """Raise `UnsupportedOperationError`."""
        self.check_open()
        resolve_generate(config, options, "batch_generate")
        raise unsupported(Capability.BATCH_GENERATE, self._backend, self.refusals)

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
