"""Common parts of backends: a request's clock, and base classes of backends, models, streams."""

from __future__ import annotations

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from core import log
from core.errors import (
    BackendUnavailableError,
    GenerationCancelled,
    GenerationTimeout,
    ModelClosedError,
    UnsupportedOperationError,
)
from core.kit.guesses import OF_MODELS
from core.kit.operations import OPERATIONS, TextModelOperations
from core.kit.support import refuse_load_options, unsupported
from core.options import GenerateConfig, LoadConfig, all_options_named, resolve
from core.protocols import PROTOCOL_VERSION, Capability
from core.records import error_record, without_frames
from core.types import FinishReason, GenerateMetrics, Token

Check = Callable[[], None]
"""Function that raises if the request has to stop: cancelled, out of time, or model closed."""

STOPPED = (GenerationCancelled, GenerationTimeout)
"""The errors that `RequestClock.check` raises."""


def never_stop() -> None:
    """Do nothing: a check that never stops a request."""


class RequestClock:
    """The timeout and the ``cancel`` of one request, checked between the steps of its work.

    ``spent``: seconds that the request has already run.
    """

    def __init__(self, config: GenerateConfig, spent: float = 0.0) -> None:
        self._cancel, self._timeout = config.cancel, config.timeout
        self._start = time.monotonic() - spent
        self._over = False

    @property
    def seconds(self) -> float:
        """Seconds since the request began."""
        return time.monotonic() - self._start

    def stop(self) -> None:
        """End a request whose caller no longer waits: each `check` raises from now on."""
        self._over = True

    def check(self) -> None:
        """Raise `GenerationCancelled` or `GenerationTimeout` if the request has to stop."""
        if self._over:
            raise GenerationCancelled
        if self._cancel is not None and self._cancel.is_set():
            raise GenerationCancelled
        if self._timeout is not None and self.seconds >= self._timeout:
            raise GenerationTimeout(self._timeout)


@contextmanager
def stopping(clock: RequestClock) -> Iterator[RequestClock]:
    """Stop the clock when the block ends, however it ends, so that work still running stops."""
    try:
        yield clock
    finally:
        clock.stop()


class TokenStreamBase(Iterator[Token]):
    """A `TokenStream` except for the backend-specific parts: the abstract members below.

    Tokens come from `next_token`, through ``next()``, which records their text.
    """

    def __init__(self) -> None:
        # A token in constant time and no object for each. Not a StringIO: a stream that is used
        # while the interpreter ends would find it closed.
        self._given_text = bytearray()
        self._raised: Exception | None = None

    @abstractmethod
    def next_token(self) -> Token:
        """Return the next token. Raises the error that ends the stream, then StopIteration."""

    @property
    @abstractmethod
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""

    @property
    @abstractmethod
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; final once it has ended."""

    @abstractmethod
    def close(self) -> None:
        """Stop the request; may be called at any time and more than once."""

    def __next__(self) -> Token:
        try:
            token = self.next_token()
        except StopIteration:
            raise
        except Exception as error:
            self._raised = without_frames(error)
            raise
        self._given_text += token.text.encode("utf-8", "surrogatepass")
        return token

    def text(self) -> str:
        """Return the full text, including tokens that were read before. See `TokenStream`."""
        if self._raised is not None:
            raise without_frames(self._raised)
        for _ in self:
            pass
        return self._text()

    def _text(self) -> str:
        return self._given_text.decode("utf-8", "surrogatepass")

    def to_dict(self) -> dict[str, object]:
        """Return the state of the stream for JSON. See `TokenStream`."""
        return {
            "text": self._text(),
            "finish_reason": self.finish_reason,
            "metrics": self.metrics.to_dict(),
            "error": error_record(self._raised),
        }

    def __repr__(self) -> str:
        """Return its state; never the text, which may be private."""
        return f"<{type(self).__name__}: {self._state()}>"

    def _state(self) -> str:
        size = len(self._text())
        read = "1 character" if size == 1 else f"{size} characters"
        if self._raised is not None:
            return f"failed with {type(self._raised).__name__} after {read}"
        if self.finish_reason is not None:
            return f"ended with {self.finish_reason!r}, {read}"
        if size:
            return f"{read} so far; text() reads the rest"
        return "not read yet; iterate it, or call text()"


class GeneratorStream(TokenStreamBase):
    """A stream whose tokens a generator yields, in the thread that reads it.

    Work begins with the first token. ``record`` takes the metrics of a stream that has begun, once
    it has ended.
    """

    def __init__(self, record: Callable[[GenerateMetrics], None]) -> None:
        super().__init__()
        self._record = record
        self._tokens = self.run()
        self._closed = False
        self._reason: FinishReason | None = None
        self._metrics = GenerateMetrics()

    @abstractmethod
    def tokens(self) -> Generator[Token, None, FinishReason]:
        """Yield the tokens, and return why they ended. Raises the error that ends the stream."""

    @abstractmethod
    def spent(self) -> GenerateMetrics:
        """Return the cost of the tokens so far; called at their end."""

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""
        return self._reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; all zero until it has ended."""
        return self._metrics

    def run(self) -> Generator[Token, None, None]:
        """Yield the tokens, and keep the reason and the cost of their end."""
        reason: FinishReason = "error"
        try:
            reason = yield from self.tokens()
            if self._closed:
                reason = "cancelled"
        except (GeneratorExit, GenerationCancelled) as error:
            reason = "cancelled"
            if isinstance(error, GeneratorExit) or not self._closed:
                raise
        finally:
            self._reason, self._metrics = reason, self.spent()
            self._record(self._metrics)

    def next_token(self) -> Token:
        """Return the next token; none if another thread has closed the stream meanwhile."""
        token = next(self._tokens)
        if self._closed:
            self._tokens.close()
            raise StopIteration
        return token

    def close(self) -> None:
        """Stop. While another thread reads, it stops at that thread's next token."""
        self._closed = True
        with suppress(ValueError):  # another thread is inside the generator
            self._tokens.close()
            self._reason = self._reason or "cancelled"


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


class Guessable:
    """A mixin: an attribute that there is not, but in ``_guesses``, is an error with its advice."""

    __slots__ = ()
    _guesses: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # type checkers do not see it

        def __getattr__(self, name: str) -> object:
            """Raise AttributeError; see `object.__getattribute__`."""
            if advice := type(self)._guesses.get(name):
                raise AttributeError(f"{type(self).__name__} has no {name!r}: {advice}.", name=name)
            return object.__getattribute__(self, name)  # raises, as without this method


class TextModelBase(TextModelOperations, Guessable):
    """A `TextModel` without operations; subclasses implement the ones they support.

    A subclass overrides ``classify``, or ``do_classify``, which gets its options resolved.
    Every other operation checks its options, so that an invalid one is an error here as everywhere,
    then raises `UnsupportedOperationError` with the names of the backends that support it, and for
    the model at ``location``, which `core.load_model` sets. The options that a subclass's methods
    take are added to their docstrings.
    """

    location: str = ""
    _guesses = OF_MODELS

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
        self, operation: str, config: GenerateConfig | None, options: object
    ) -> GenerateConfig:
        """Return the options of a call. Raises for invalid ones.

        Raises for unsupported ones through ``refuse_unsupported``.
        """
        self.check_open()
        capability, known = OPERATIONS[operation]
        request = resolve(GenerateConfig, config, options, known, operation)
        self.refuse_unsupported(request, capability)
        return request

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        """Raise for options that the backend does not support: for subclasses."""

    def unsupported(self, capability: Capability) -> UnsupportedOperationError:
        """Return the error of an operation without an implementation."""
        return unsupported(capability, self._backend, self.location)

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
