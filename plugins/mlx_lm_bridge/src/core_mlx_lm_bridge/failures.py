"""Errors of the caller's side, for answers of the worker and for the end of the worker itself."""

from __future__ import annotations

import errno

from core import errors
from core.chat import unread_variable
from core.errors import (
    BackendProcessError,
    BackendUnavailableError,
    CoreError,
    InvalidOptionError,
    PromptTooLongError,
)
from core_mlx_lm_bridge.process import WorkerProcess
from core_mlx_lm_bridge.protocol import Error

_BY_MESSAGE = {
    name: getattr(errors, name)
    for name in (
        "ChatTemplateError",
        "EmptyPromptError",
        "InvalidModelError",
        "ModelNotFoundError",
        "OutOfMemoryError",
        "ProtocolMismatchError",
        "TokenizerError",
        "UnsupportedModelError",
    )
}
_NEXT = "The next call starts a fresh worker."


def of_answer(answer: Error, backend: str, stderr_tail: str) -> CoreError:
    """The error that the worker names; one that is none of ours is the worker's failure."""
    if answer.error in _BY_MESSAGE:
        error: CoreError = _BY_MESSAGE[answer.error](answer.message)
        return error

    # Some errors carry numbers, or the name of the backend, besides their words.
    if answer.error == "PromptTooLongError":
        return PromptTooLongError(answer.length, answer.limit)
    if answer.variable:
        return unread_variable(answer.variable, list(filter(None, answer.message.split(", "))))
    if answer.error == "InvalidOptionError":
        return InvalidOptionError("context_len", answer.length, answer.message)
    if answer.error == "BackendUnavailableError":
        return BackendUnavailableError(backend, answer.message)

    return BackendProcessError(
        f"mlx-lm failed with {answer.error}: {answer.message[:1000]}. The worker is still there; "
        "what went wrong may go wrong again with this request.",
        stderr_tail,
    )


def died(worker: WorkerProcess, when: str) -> BackendProcessError:
    """The error for a worker that ended while an answer was expected.

    Kills the worker, to be sure, and hears its last words.
    """
    fate = worker.fate()
    return _killed(worker, f"{fate} {when}")


def nonsense(worker: WorkerProcess, what: str) -> BackendProcessError:
    """The error for a worker that wrote what the protocol does not know. Kills the worker."""
    return _killed(worker, f"broke the protocol and was ended: {what}")


def silent(worker: WorkerProcess, seconds: float, when: str) -> BackendProcessError:
    """The error for a worker that wrote nothing for too long. Kills the worker."""
    return _killed(
        worker,
        f"wrote nothing for {seconds:g} s {when} and was ended. Where that is not long enough for "
        "this model, raise options={'silence_timeout': seconds}",
    )


def not_started(command: str, error: OSError, backend: str) -> BackendUnavailableError:
    """The error for an interpreter that cannot be run."""
    if error.errno == errno.E2BIG:
        return BackendUnavailableError(
            backend,
            "the environment that the worker would get (the caller's, and options={'env': ...}) is "
            "longer than the system takes. Shorten it.",
        )
    reason = error.strerror or str(error)
    return BackendUnavailableError(
        backend,
        f"the worker's interpreter {command!r} cannot be run: {reason}. Name another one with "
        "CORE_MLX_LM_PYTHON or options={'python': path}.",
    )


def _killed(worker: WorkerProcess, what: str) -> BackendProcessError:
    worker.kill()
    return BackendProcessError(
        f"The mlx-lm worker (process {worker.pid}) {what}. {_NEXT}", worker.stderr_tail()
    )
