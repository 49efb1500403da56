"""Errors on the caller's side: for error answers of the worker, and for its failures."""

from __future__ import annotations

import errno

from core import errors
from core.errors import (
    BackendProcessError,
    BackendUnavailableError,
    CoreError,
    InvalidOptionError,
    PromptTooLongError,
)
from core.kit.chat import unread_variable
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
_NEXT = "The next call starts a new worker."


def of_answer(answer: Error, backend: str, stderr_tail: str) -> CoreError:
    """Return the error that the worker names; an unknown name is a `BackendProcessError`."""
    if answer.error in _BY_MESSAGE:
        error: CoreError = _BY_MESSAGE[answer.error](answer.message)
        return error

    # Some errors carry numbers, or the name of the backend, in addition to a message.
    if answer.error == "PromptTooLongError":
        return PromptTooLongError(answer.length, answer.limit)
    if answer.variable:
        return unread_variable(answer.variable, list(filter(None, answer.message.split(", "))))
    if answer.error == "InvalidOptionError":
        return InvalidOptionError("context_len", answer.length, answer.message)
    if answer.error == "BackendUnavailableError":
        return BackendUnavailableError(backend, answer.message)

    return BackendProcessError(
        f"mlx-lm failed with {answer.error}: {answer.message[:1000]}. The worker still runs; the "
        "same request may fail again.",
        stderr_tail,
    )


def died(worker: WorkerProcess, when: str) -> BackendProcessError:
    """Return the error for a worker that ended while an answer was expected.

    Kills the worker if it still runs, and adds its last output.
    """
    fate = worker.fate()
    return _killed(worker, f"{fate} {when}")


def nonsense(worker: WorkerProcess, what: str) -> BackendProcessError:
    """Return the error for a worker that broke the protocol. Kills the worker."""
    return _killed(worker, f"broke the protocol and was killed: {what}")


def silent(worker: WorkerProcess, seconds: float, when: str) -> BackendProcessError:
    """Return the error for a worker that wrote nothing for too long. Kills the worker."""
    return _killed(
        worker,
        f"wrote nothing for {seconds:g} s {when} and was killed. If this model needs longer, "
        "increase options={'silence_timeout': seconds}",
    )


def not_started(command: str, error: OSError, backend: str) -> BackendUnavailableError:
    """Return the error for an interpreter that cannot be run."""
    if error.errno == errno.E2BIG:
        return BackendUnavailableError(
            backend,
            "the worker's environment (the caller's and options={'env': ...}) exceeds the "
            "system's limit. Shorten it.",
        )
    reason = error.strerror or str(error)
    return BackendUnavailableError(
        backend,
        f"the worker's interpreter {command!r} cannot be run: {reason}. Set another one with "
        "CORE_MLX_LM_PYTHON or options={'python': path}.",
    )


def _killed(worker: WorkerProcess, what: str) -> BackendProcessError:
    worker.kill()
    return BackendProcessError(
        f"The mlx-lm worker (process {worker.pid}) {what}. {_NEXT}", worker.stderr_tail()
    )
