"""Every error that this project raises on purpose, as one tree.

::

    CoreError
    ├── OptionError (ValueError)             an option of a call or of a load
    │   ├── InvalidOptionError               the value is out of range or of the wrong type
    │   ├── LabelError                       the set of labels cannot be scored
    │   └── UnsupportedOptionError           the value is fine, this backend cannot honour it
    ├── UnsupportedOperationError            this backend does not offer the operation
    ├── BackendError
    │   ├── UnknownBackendError (LookupError)
    │   ├── BackendUnavailableError          installed, cannot run on this machine
    │   ├── BackendImportError               its plugin failed to import
    │   ├── AmbiguousBackendError            two distributions claim one name
    │   ├── ProtocolMismatchError            written for another version of the contract
    │   └── BackendProcessError              its helper process died, hung, or spoke nonsense
    ├── ModelError
    │   ├── ModelNotFoundError (FileNotFoundError)
    │   ├── ModelAccessError (PermissionError)
    │   ├── InvalidModelError                broken files: config, weights
    │   ├── TokenizerError                   tokenizer missing or broken
    │   ├── UnsupportedModelError            sound files, no backend code for them
    │   ├── ModelBusyError                   the call would wait for its own thread
    │   └── ModelClosedError                 used after close()
    ├── TaskError (ValueError)               a task, or its file, is broken
    │   └── CalibrationError                 it cannot be fitted, read, or used here
    ├── EvaluationError (ValueError)         an item cannot be asked, marked or compared
    ├── TrainingError (ValueError)           nothing can be learned, or learning had to stop
    ├── ConversionError                      a model could not be converted
    ├── OutputError (OSError)                a file is not this program's to write or replace
    └── RequestError                         one prompt failed; others are not touched
        ├── EmptyPromptError
        ├── PromptTooLongError
        ├── ChatTemplateError
        ├── OutOfMemoryError (MemoryError)
        ├── GenerationCancelled
        └── GenerationTimeout (TimeoutError)

Every message says what happened, to what, and what to do next. Every error survives pickling,
so it may cross a process border inside a result.
"""

from __future__ import annotations

from collections.abc import Sequence


def _restore(cls: type[CoreError], args: tuple[object, ...], state: dict[str, object]) -> CoreError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class CoreError(Exception):
    """Root of the tree: ``except CoreError`` catches whatever this project raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        # Subclasses take other arguments than the message, which plain pickling replays.
        return _restore, (type(self), self.args, self.__dict__)


# --------------------------------------------------------------------------- options


class OptionError(CoreError, ValueError):
    """An option of a call or of a load cannot be used."""


class InvalidOptionError(OptionError):
    """An option has a wrong value. Attributes: ``option``, ``value``, ``expected``."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        self.option, self.value, self.expected = option, value, expected
        super().__init__(f"{option}={_short(value)} is not valid: expected {expected}.")

    def __reduce__(self) -> tuple[object, ...]:
        # The value may be anything, also something that cannot be pickled.
        plain = isinstance(self.value, str | int | float | None)
        state = {**self.__dict__, "value": self.value if plain else _short(self.value)}
        return _restore, (type(self), self.args, state)


class LabelError(OptionError):
    """The labels of a classify call cannot be told apart or cannot be scored."""


class UnsupportedOptionError(OptionError):
    """A backend cannot honour an option. Attributes: ``option``, ``backend``."""

    def __init__(self, option: str, backend: str, advice: str = "") -> None:
        self.option, self.backend = option, backend
        advice = advice or f"Leave {option} at its default."
        super().__init__(f"Backend {backend!r} cannot honour the option {option!r}. {advice}")


class UnsupportedOperationError(CoreError):
    """A backend does not offer an operation. Attributes: ``operation``, ``backend``.

    ``refused`` are backends that do offer it, each with its reason not to load this model.
    """

    def __init__(
        self,
        operation: str,
        backend: str,
        offered_by: Sequence[str] = (),
        refused: Sequence[tuple[str, str]] = (),
    ) -> None:
        # A backend that offers it with other models is not an alternative to itself.
        self.offered_by = tuple(name for name in offered_by if name != backend)
        self.operation, self.backend, self.refused = operation, backend, tuple(refused)
        names = ", ".join(self.offered_by)
        nobody = "It does with other models." if offered_by else "No backend on this machine does."
        hint = f"Backends here that do: {names}." if names else nobody
        if refused:
            told = "".join(f"\n  {name}: {reason}" for name, reason in refused)
            others = f" {hint}" if names else ""
            hint = f"What does refuses this model:{told}{others}"
        super().__init__(f"Backend {backend!r} does not offer {operation}. {hint}")


# --------------------------------------------------------------------------- backends


class BackendError(CoreError):
    """A backend cannot be found, imported, or used."""


class UnknownBackendError(BackendError, LookupError):
    """No installed distribution registers this name."""


class BackendUnavailableError(BackendError):
    """The backend is installed and cannot run here. Attributes: ``backend``, ``reason``.

    ``backend`` is empty where none was asked for, and none is there.
    """

    def __init__(self, backend: str, reason: str) -> None:
        self.backend, self.reason = backend, reason
        super().__init__(f"Backend {backend!r} is not available: {reason}" if backend else reason)


class BackendImportError(BackendError):
    """A backend's plugin raised while it was imported; the cause is chained."""


class AmbiguousBackendError(BackendError):
    """Several distributions register one backend name."""


class ProtocolMismatchError(BackendError):
    """A backend was written for another version of the contract."""


class BackendProcessError(BackendError):
    """A backend's helper process died, fell silent, or broke its protocol.

    Attributes: ``stderr_tail``, the last lines that the process wrote to stderr.
    """

    def __init__(self, message: str, stderr_tail: str = "") -> None:
        self.stderr_tail = stderr_tail
        tail = f"\nIts last words on stderr:\n{stderr_tail}" if stderr_tail else ""
        super().__init__(message + tail)


# --------------------------------------------------------------------------- models


class ModelError(CoreError):
    """A model cannot be loaded or used."""


class ModelNotFoundError(ModelError, FileNotFoundError):
    """There is nothing at this path, or nothing that looks like a model."""


class ModelAccessError(ModelError, PermissionError):
    """The model is there and this process may not read it."""


class InvalidModelError(ModelError):
    """The model's files are broken or contradict one another."""


class TokenizerError(ModelError):
    """The model's tokenizer is missing or broken."""


class UnsupportedModelError(ModelError):
    """The files are sound, and the backend has no code for this model."""


class ModelBusyError(ModelError):
    """The call would wait for something that its own thread has to finish first."""


class ModelClosedError(ModelError):
    """The model was used after ``close()``."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The model is closed. Load it again with core.load_model().")


class ConversionError(CoreError):
    """A model could not be converted to another format."""


class OutputError(CoreError, OSError):
    """A place where nothing is written: what is there was written by others, or is no plain file.

    Nothing was changed.
    """


class TaskError(CoreError, ValueError):
    """A task, or the file of one, is broken or contradicts itself."""


class CalibrationError(TaskError):
    """A calibration cannot be fitted to these rows, read from this file, or used with this task."""


class EvaluationError(CoreError, ValueError):
    """An item of an evaluation, its prompt, or what it is compared with cannot be used."""


class TrainingError(CoreError, ValueError):
    """Nothing can be learned from these examples, or training had to stop at a step.

    ``step`` is the one that failed, 0 where none was begun; ``checkpoint`` the path of the last
    good one, None without any.
    """

    def __init__(self, message: str, step: int = 0, checkpoint: str | None = None) -> None:
        self.step, self.checkpoint = step, checkpoint
        super().__init__(message)


# --------------------------------------------------------------------------- one request


class RequestError(CoreError):
    """One prompt failed. In a batch it is that row's ``error``; the other rows finish."""


class EmptyPromptError(RequestError):
    """The prompt has no text."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The prompt is empty. Give it at least one character.")


class PromptTooLongError(RequestError):
    """The prompt does not fit the context. Attributes in tokens: ``length``, ``limit``.

    ``own`` is the context that the model was made for, 0 where that is not known; ``at_least``: the
    length is a lower bound, of a prompt too long to be tokenised.
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
            advice = "Shorten it: the model was made for no more."
        else:
            most = f"of at most {own}" if own else "if it was made for one"
            advice = f"Shorten it, or load the model with a larger context_len, {most}."
        size = f"{'at least ' * at_least}{length} tokens"
        super().__init__(f"{what} is {size} long and the context holds {limit}. {advice}")


class ChatTemplateError(RequestError):
    """The model's chat template is missing, broken, or refuses these messages."""


class OutOfMemoryError(RequestError, MemoryError):
    """The device had no memory left for this request."""

    def __reduce__(self) -> tuple[object, ...]:
        # MemoryError allows no __new__ from outside; the message is all there is to replay.
        return type(self), self.args, self.__dict__


class GenerationCancelled(RequestError):
    """The request's ``cancel`` was set."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message or "The request was cancelled.")


class GenerationTimeout(RequestError, TimeoutError):
    """The request took longer than its ``timeout``. Attribute: ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"The request was stopped after its timeout of {seconds:g} s. "
            "Raise timeout, or ask for fewer tokens."
        )


ANYTHING = (Exception, SystemExit)
"""What the code of a plugin may raise without taking other plugins down with it."""


def _short(value: object, limit: int = 80) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - integers beyond Python's print limit, foreign objects
        text = f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


def described(error: BaseException) -> str:
    """An error in one line: ours speak for themselves, others need their type."""
    name, text = type(error).__name__, str(error)
    return text if type(error).__module__ == __name__ else f"{name}: {text}".rstrip(": ")
