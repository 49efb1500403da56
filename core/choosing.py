"""Which backend a model is loaded with when the user names none, and why not the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from core.errors import BackendUnavailableError, ModelError, UnsupportedModelError
from core.extensions import ModelProbe
from core.gguf_header import read_gguf
from core.known_plugins import PREFERENCE, how_to_read
from core.model_files import model_formats, read_config_json, resolve_path
from core.protocols import Backend

ANYTHING = (Exception, SystemExit)
"""What foreign code may raise without taking other plugins down with it."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The backend chosen for a model, why, and each one passed over with its reason."""

    backend: Backend
    reason: str
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class _Objection:
    name: str
    reason: str
    against: Literal["machine", "format", "model"]


def choose(
    names: Iterable[str], get: Callable[[str], Backend], path: str | os.PathLike[str]
) -> BackendChoice:
    """The first of these backends that is available, reads the format and takes the model.

    Raises `BackendUnavailableError` when those that read the format cannot run here,
    `UnsupportedModelError` when those that can refuse the model or its format, and
    `ModelNotFoundError`, `ModelAccessError` or `InvalidModelError` for the files themselves.
    """
    location = resolve_path(path)
    formats = model_formats(location)
    _check_header(location, formats)
    objections: list[_Objection] = []
    for name in names:
        try:
            backend = get(name)
            objection = _objection(name, backend, location, formats)
        except ANYTHING as error:
            objections.append(_Objection(name, described(error), "machine"))
            continue
        if objection is None:
            skipped = tuple((o.name, o.reason) for o in objections)
            return BackendChoice(backend, _why(name, formats), skipped)
        objections.append(objection)
    raise _nothing_fits(location, formats, objections)


def unavailability(backend: Backend) -> str | None:
    """Why a backend cannot run here, whatever its own answer costs; None when it can."""
    try:
        if backend.available():
            return None
        return backend.unavailable_reason() or "it gives no reason"
    except ANYTHING as error:
        return f"asking whether it is available raised {described(error)}"


def described(error: BaseException) -> str:
    """An error in one line: ours speak for themselves, others need their type."""
    name, text = type(error).__name__, str(error)
    return text if type(error).__module__ == "core.errors" else f"{name}: {text}".rstrip(": ")


def _objection(
    name: str, backend: Backend, location: str, formats: Collection[str]
) -> _Objection | None:
    if not set(formats) & set(backend.formats):
        reads = ", ".join(sorted(backend.formats)) or "nothing"
        reason = f"it reads {reads}; this model is {' and '.join(formats)}"
        return _Objection(name, reason, "format")
    if reason_not := unavailability(backend):
        return _Objection(name, reason_not, "machine")
    if refusal := _refusal(backend, location):
        return _Objection(name, refusal, "model")
    return None


def _refusal(backend: Backend, location: str) -> str | None:
    if not isinstance(backend, ModelProbe):
        return None
    try:
        return backend.refusal(location)
    except ANYTHING as error:
        return f"asking whether it takes the model raised {described(error)}"


def _check_header(location: str, formats: Collection[str]) -> None:
    # Broken files are an error of their own, not a refusal by every backend in turn.
    if tuple(formats) == ("safetensors",):
        read_config_json(location)
    elif os.path.isfile(location):
        read_gguf(location, only=("general.architecture",))


def _why(name: str, formats: Collection[str]) -> str:
    return (
        f"{name} is the first backend, in the order {', '.join(PREFERENCE)} and then any other, "
        f"that reads {' or '.join(formats)}, can run on this machine and does not refuse the model"
    )


def _nothing_fits(
    location: str, formats: Collection[str], objections: Sequence[_Objection]
) -> BackendUnavailableError | ModelError:
    kinds = {objection.against for objection in objections}
    lines = "".join(f"\n  {o.name}: {o.reason}" for o in objections)
    get_one = f"\nFor {' or '.join(formats)}, {how_to_read(formats)}"
    if not objections:
        return BackendUnavailableError("any", f"no backend is installed.{get_one}")
    if "machine" in kinds and "model" not in kinds:
        return BackendUnavailableError(
            "any", f"no installed backend that could load {location!r} runs here.{lines}{get_one}"
        )
    advice = get_one if "model" not in kinds else "\nUse a model of a supported architecture."
    return UnsupportedModelError(f"No installed backend loads {location!r}.{lines}{advice}")
