"""The tree of errors that this project raises on purpose.

::

    CoreError
    ├── OptionError (ValueError)             an option of a call or of a load
    │   ├── InvalidOptionError               the value is out of range or of the wrong type
    │   ├── LabelError                       the set of labels cannot be scored
    │   └── UnsupportedOptionError           a valid option that this backend does not support
    ├── UnsupportedOperationError            this backend does not support the operation
    ├── BackendError
    │   ├── UnknownBackendError (LookupError)
    │   ├── BackendUnavailableError          installed, cannot run on this machine
    │   ├── BackendImportError               its plugin failed to import
    │   ├── AmbiguousBackendError            two distributions claim one name
    │   ├── ProtocolMismatchError            written for another version of the contract
    │   └── BackendProcessError              its helper process died, hung, or broke its protocol
    ├── ModelError
    │   ├── ModelNotFoundError (FileNotFoundError)
    │   ├── ModelAccessError (PermissionError)
    │   ├── InvalidModelError                broken files: config, weights
    │   ├── TokenizerError                   tokenizer missing or broken
    │   ├── UnsupportedModelError            valid files, no backend code for them
    │   ├── ModelBusyError                   the call would wait for its own thread
    │   └── ModelClosedError                 used after close()
    ├── TaskError (ValueError)               a task, or its file, is broken
    │   └── CalibrationError                 a calibration cannot be fitted, read, or used here
    ├── EvaluationError (ValueError)         an item cannot be run, marked or compared
    ├── TrainingError (ValueError)           nothing can be learned, or learning had to stop
    ├── ConversionError                      a model could not be converted
    ├── OutputError (OSError)                an output file must not be written or replaced
    └── RequestError                         one prompt failed; the others are unaffected
        ├── EmptyPromptError
        ├── PromptTooLongError
        ├── ChatTemplateError
        ├── OutOfMemoryError (MemoryError)
        ├── GenerationCancelled
        └── GenerationTimeout (TimeoutError)

Every message states what failed, with its value, and the next step. Every error can be pickled,
so a result may carry it to another process.
"""

from __future__ import annotations

from collections.abc import Sequence


def _restore(cls: type[CoreError], args: tuple[object, ...], state: dict[str, object]) -> CoreError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class CoreError(Exception):
    """Base class of all errors that this project raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses take other arguments than the message, which plain pickling replays.
        return _restore, (type(self), self.args, self.__dict__)


# --------------------------------------------------------------------------- options


class OptionError(CoreError, ValueError):
    """Unusable option of a call or of a load."""


class InvalidOptionError(OptionError):
    """Invalid value of an option. Attributes: ``option``, ``value``, ``expected``."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        self.option, self.value, self.expected = option, value, expected
        super().__init__(f"{option}={_short(value)} is not valid: expected {expected}.")

    def __reduce__(self) -> tuple[object, ...]:
        # The value may be any object, even one that cannot be pickled.
        plain = isinstance(self.value, str | int | float | None)
        state = {**self.__dict__, "value": self.value if plain else _short(self.value)}
        return _restore, (type(self), self.args, state)


class LabelError(OptionError):
    """Labels of a classify call that the model cannot distinguish or score."""


class UnsupportedOptionError(OptionError):
    """Option that a backend does not support. Attributes: ``option``, ``backend``."""

    def __init__(self, option: str, backend: str, advice: str = "") -> None:
        self.option, self.backend = option, backend
        advice = advice or f"Leave {option} at its default."
        super().__init__(f"Backend {backend!r} does not support the option {option!r}. {advice}")


class UnsupportedOperationError(CoreError):
    """Operation that a backend does not support. Attributes: ``operation``, ``backend``.

    ``offered_by`` names the other backends that support it. ``refused`` pairs the backends that
    support it but do not load this model with their reasons.
    """

    def __init__(
        self,
        operation: str,
        backend: str,
        offered_by: Sequence[str] = (),
        refused: Sequence[tuple[str, str]] = (),
        advice: str = "",
    ) -> None:
        # A backend that supports it for other models is not an alternative to itself.
        self.offered_by = tuple(name for name in offered_by if name != backend)
        self.operation, self.backend, self.refused = operation, backend, tuple(refused)
        names = ", ".join(self.offered_by)
        only_itself = "It supports it for other models."
        no_backend = only_itself if offered_by else "No available backend supports it."
        hint = f"Supported by: {names}." if names else no_backend
        if refused:
            refusal_lines = "".join(f"\n  {name}: {reason}" for name, reason in refused)
            others = f"\n{hint}" if names else ""
            hint = f"These support it but cannot load this model:{refusal_lines}{others}"
        super().__init__(f"Backend {backend!r} does not support {operation}. {advice or hint}")


# --------------------------------------------------------------------------- backends


class BackendError(CoreError):
    """Backend that cannot be found, imported, or used."""


class UnknownBackendError(BackendError, LookupError):
    """Backend name that no installed distribution registers."""


class BackendUnavailableError(BackendError):
    """Installed backend that cannot run on this machine. Attributes: ``backend``, ``reason``.

    ``backend`` is empty if none was named and none is available.
    """

    def __init__(self, backend: str, reason: str) -> None:
        self.backend, self.reason = backend, reason
        super().__init__(f"Backend {backend!r} is not available: {reason}" if backend else reason)


class BackendImportError(BackendError):
    """Failed import of a backend's plugin; the cause is chained."""


class AmbiguousBackendError(BackendError):
    """Backend name that several distributions register."""


class ProtocolMismatchError(BackendError):
    """Backend that was written for another version of the contract."""


class BackendProcessError(BackendError):
    """Failed helper process of a backend: it died, hung, or broke its protocol.

    Attribute: ``stderr_tail``, the last lines that the process wrote to stderr.
    """

    def __init__(self, message: str, stderr_tail: str = "") -> None:
        self.stderr_tail = stderr_tail
        tail = f"\nThe end of its stderr:\n{stderr_tail}" if stderr_tail else ""
        super().__init__(message + tail)


# --------------------------------------------------------------------------- models


class ModelError(CoreError):
    """Model that cannot be loaded or used."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """Path that does not exist, or does not hold a model."""


class ModelAccessError(ModelError, PermissionError):
    """Model files that this process has no permission to read."""


class InvalidModelError(ModelError):
    """Model files that are broken or contradict one another."""


class TokenizerError(ModelError):
    """Missing or broken tokenizer of a model."""


class UnsupportedModelError(ModelError):
    """Model with valid files that the backend has no code for."""


class ModelBusyError(ModelError):
    """Call that would deadlock: it waits for work that its own thread has to finish first."""


class ModelClosedError(ModelError):
    """Use of a model after ``close()``."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The model is closed. Load it again with core.load_model().")


class ConversionError(CoreError):
    """Failed conversion of a model to another format."""


class OutputError(CoreError, OSError):
    """Output path that was not written: another program's file, or not a regular file."""


class TaskError(CoreError, ValueError):
    """Task, or task file, that is broken or contradicts itself."""


class CalibrationError(TaskError):
    """Calibration that cannot be fitted to these rows, read from this file, or used here."""


class EvaluationError(CoreError, ValueError):
    """Unusable item of an evaluation, prompt of one, or evaluation to compare with."""


class TrainingError(CoreError, ValueError):
    """Examples that nothing can be learned from, or training that had to stop at a step.

    ``step`` is the number of the failed step, 0 if none was started. ``checkpoint`` is the path of
    the last good checkpoint, or None.
    """

    def __init__(self, message: str, step: int = 0, checkpoint: str | None = None) -> None:
        self.step, self.checkpoint = step, checkpoint
        super().__init__(message)


# --------------------------------------------------------------------------- one request


class RequestError(CoreError):
    """Failure of one prompt. In a batch it is that row's ``error``; the other rows finish."""


class EmptyPromptError(RequestError):
    """Prompt without text."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The prompt is empty. Pass at least one character.")


class PromptTooLongError(RequestError):
    """Prompt that does not fit the context. Attributes, in tokens: ``length``, ``limit``.

    ``own`` is the context length that the model was trained for, 0 if unknown. With ``at_least``,
    ``length`` is a lower bound: the prompt was too long to tokenise.
    """

    def __init__(
        self,
        length: int,
        limit: int,
        what: str = "The prompt",
        own: int = 0,
        *,
        at_least: bool = False,
    ) -> None:
        self.length, self.limit, self.what = length, limit, what
        self.own, self.at_least = own, at_least
        if own and limit >= own:
            advice = "Shorten it: the model supports no larger context."
        else:
            most = f"at most {own}" if own else "if it supports one"
            advice = f"Shorten it, or load the model with a larger context_len, {most}."
        size = f"{'at least ' * at_least}{length} tokens"
        super().__init__(f"{what} is too long: {size}; the context limit is {limit}. {advice}")


class ChatTemplateError(RequestError):
    """Chat template that is missing, broken, or rejects these messages."""


class OutOfMemoryError(RequestError, MemoryError):
    """Request that ran out of device memory."""

    def __reduce__(self) -> tuple[object, ...]:
        # MemoryError.__new__ cannot be called from outside; only the message needs replaying.
        return type(self), self.args, self.__dict__


class GenerationCancelled(RequestError):
    """Request that was stopped because its ``cancel`` was set."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The request was cancelled.")


class GenerationTimeout(RequestError, TimeoutError):
    """Request that took longer than its ``timeout``. Attribute: ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"The request was stopped after its timeout of {seconds:g} s. "
            "Raise the timeout, or request fewer tokens."
        )


ANYTHING = (Exception, SystemExit)
"""Exceptions from plugin code that must not affect other plugins."""


def _short(value: object, limit: int = 80) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - integers beyond Python's print limit, foreign objects
        text = f"<{type(value).__name__} that cannot be displayed>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def described(error: BaseException) -> str:
    """Return an error as one line; the type is included for errors from outside this module."""
    name, text = type(error).__name__, str(error)
    return text if type(error).__module__ == __name__ else f"{name}: {text}".rstrip(": ")
