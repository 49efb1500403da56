"""Errors in the format of each API: its own status and body, never another exception.

The bodies are those of OpenAI's API (https://platform.openai.com/docs/guides/error-codes) and of
System One (the ``HTTPValidationError`` of https://api.typesafe.ai/openapi.json; any other error
carries ``error_type`` and ``message``, jevcompat's SPEC.md section 6). Their clients retry
after a 5xx, so no bad request gets one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from core.errors import (
    CoreError,
    GenerationCancelled,
    GenerationTimeout,
    ModelBusyError,
    ModelClosedError,
    OptionError,
    OutOfMemoryError,
    PromptTooLongError,
    RequestError,
    UnsupportedOperationError,
)

Path = tuple[str | int, ...]


class WireError(RequestError):
    """A rejected request. Attributes: ``status`` (of HTTP), ``body`` (for JSON)."""

    def __init__(self, status: int, body: dict[str, object], message: str) -> None:
        self.status, self.body = status, body
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Dialect:
    """Error format of one family of APIs."""

    family: Literal["openai", "systemone"]

    def invalid(self, path: Path, message: str, code: str) -> WireError:
        """Return the error of an invalid request, in the field at this path.

        ``code`` is an identifier for programs.
        """
        if self.family == "systemone":
            detail = {"loc": ["body", *path], "msg": message, "type": code}
            return WireError(422, {"detail": [detail]}, _placed(path, message))
        return self._openai(400, _placed(path, message), path, code)

    def failed(self, status: int, code: str, message: str) -> WireError:
        """Return another error: of the model's name, a time limit, the machine."""
        if self.family == "systemone":
            body: dict[str, object] = {"detail": {"error_type": code, "message": message}}
            return WireError(status, body, message)
        return self._openai(status, message, (), code)

    def _openai(self, status: int, message: str, path: Path, code: str) -> WireError:
        kind = "invalid_request_error" if status < 500 else "server_error"
        error = {"message": message, "type": kind, "param": dotted(path) or None, "code": code}
        return WireError(status, {"error": error}, message)


OPENAI = Dialect("openai")
SYSTEM_ONE = Dialect("systemone")

# Errors that are not a fault of the request: the status, and the code.
_FAILURES: tuple[tuple[type[Exception], int, str], ...] = (
    (GenerationTimeout, 504, "timeout"),
    (GenerationCancelled, 499, "cancelled"),
    (OutOfMemoryError, 503, "out_of_memory"),
    (ModelBusyError, 503, "busy"),
    (ModelClosedError, 503, "closed"),
)
_REFUSALS = (RequestError, OptionError, UnsupportedOperationError)


def refusal(dialect: Dialect, error: Exception) -> WireError:
    """Return the error of a row in the format of its API."""
    if isinstance(error, WireError):
        return error
    for kind, status, code in _FAILURES:
        if isinstance(error, kind):
            return dialect.failed(status, code, str(error))
    if isinstance(error, PromptTooLongError):
        return dialect.invalid((), str(error), "context_length_exceeded")
    if isinstance(error, _REFUSALS):
        return dialect.invalid((), str(error), "invalid_value")
    # The message of an unexpected error may contain private data.
    unexpected = f"{type(error).__name__} in the server"
    message = str(error) if isinstance(error, CoreError) else unexpected
    return dialect.failed(500, "internal_error", message)


def unknown_model(dialect: Dialect, name: str, served: Collection[str]) -> WireError:
    """Return the error of an unknown model name, with the names that are served."""
    code = "model_not_found" if dialect.family == "openai" else "not_found"
    known = f"{', '.join(map(repr, served)):.1000}"
    return dialect.failed(404, code, f"Unknown model {name!r:.200}. Served: {known}.")


def dotted(path: Path) -> str:
    """Return a path such as ``("messages", 0, "content")`` as ``messages[0].content``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).removeprefix(".")


def _placed(path: Path, message: str) -> str:
    return f"{dotted(path)}: {message}" if path else message
