"""Which backend a model is loaded with when the user names none, and why not the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.errors import BackendUnavailableError, ModelError, UnsupportedModelError, described
from core.extensions import ModelProbe
from core.known_plugins import PREFERENCE, how_to_read
from core.models.files import model_formats, read_config_json, resolve_path
from core.models.gguf import read_gguf
from core.protocols import Backend, Capability

ANYTHING = (Exception, SystemExit)
"""What foreign code may raise without taking other plugins down with it."""


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The backend chosen for a model, why, and each one passed over with its reason."""

    backend: Backend
    reason: str
    skipped: tuple[tuple[str, str], ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    """Those of ``skipped`` that could run here, and refused the model itself."""


@dataclass(frozen=True, slots=True)
class _Objection:
    name: str
    reason: str
    against: Literal["machine", "format", "operation", "model"]


def choose(
    names: Iterable[str],
    get: Callable[[str], Backend],
    path: str | os.PathLike[str],
    needed: Capability | None = None,
) -> BackendChoice:
    """The first of these backends that is available, reads the format and takes the model.

    It offers what is ``needed``. Raises `BackendUnavailableError` when those that read the format
    cannot run here, or do not offer that, `UnsupportedModelError` when those that can refuse the
    model or its format, and
    `ModelNotFoundError`, `ModelAccessError` or `InvalidModelError` for the files themselves.
    """
    location = resolve_path(path)
    formats = model_formats(location)
    _check_header(location, formats)

    objections: list[_Objection] = []
    for name in names:
        try:
            backend = get(name)
            objection = _objection(name, backend, location, formats, needed)
        except ANYTHING as error:
            objections.append(_Objection(name, described(error), "machine"))
            continue

        if objection is None:
            skipped = tuple((o.name, o.reason) for o in objections)
            refusals = tuple((o.name, o.reason) for o in objections if o.against == "model")
            return BackendChoice(backend, _why(name, formats), skipped, refusals)
        objections.append(objection)

    raise _nothing_fits(location, formats, objections)


def unavailability(backend: Backend) -> str | None:
    """Why a backend cannot run here, also where asking it raises; None when it can."""
    try:
        if backend.available():
            return None
        return backend.unavailable_reason() or "it gives no reason"
    except ANYTHING as error:
        return f"asking whether it is available raised {described(error)}"


def _objection(
    name: str,
    backend: Backend,
    location: str,
    formats: Collection[str],
    needed: Capability | None,
) -> _Objection | None:
    if not set(formats) & set(backend.formats):
        reads = ", ".join(sorted(backend.formats)) or "nothing"
        reason = f"it reads {reads}; this model is {' and '.join(formats)}"
        return _Objection(name, reason, "format")

    # The cheap questions first: a probe opens the model's files.
    if reason_not := unavailability(backend):
        return _Objection(name, reason_not, "machine")
    if refused := refusal(backend, location):
        return _Objection(name, refused, "model")
    if needed is not None and needed not in backend.capabilities:
        return _Objection(name, f"it does not offer {needed}", "operation")
    return None


def refusal(backend: Backend, location: str) -> str | None:
    """Why a backend would not load a model, as far as it can tell beforehand."""
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


def with_refusals(error: ModelError, choice: BackendChoice) -> ModelError:
    """The error of a load by default, behind the reasons of the backends that come before.

    What is wrong with a model's files, they may have told better.
    """
    if not choice.refusals:
        return error
    told = "\n".join(f"{name}: {reason}" for name, reason in choice.refusals)
    return type(error)(f"{told}\n{choice.backend.name}, which was tried then: {error}")


def _nothing_fits(
    location: str, formats: Collection[str], objections: Sequence[_Objection]
) -> BackendUnavailableError | ModelError:
    """The error, with what may be the cause first: a refusal of the model itself."""
    by_kind: dict[str, list[_Objection]] = {}
    for objection in objections:
        by_kind.setdefault(objection.against, []).append(objection)
    get_one = how_to_read(formats, [objection.name for objection in objections])
    advice = f"\n{get_one}" if get_one else ""
    elsewhere = _elsewhere(by_kind.get("machine", ()))

    if "model" in by_kind:
        lines = _lines(by_kind, "model", "operation", "format") + elsewhere
        return UnsupportedModelError(f"No backend on this machine loads {location!r}.{lines}")
    if "operation" in by_kind:
        lines = _lines(by_kind, "operation", "format") + elsewhere
        what = f"No backend on this machine does that with {' or '.join(formats)}."
        return BackendUnavailableError("", f"{what}{lines}{advice}")
    if "machine" in by_kind:
        lines = _lines(by_kind, "machine", "format")
        what = f"No installed backend that could load {location!r} runs on this machine."
        return BackendUnavailableError("", f"{what}{lines}{advice}")
    if "format" in by_kind:
        lines = _lines(by_kind, "format")
        return UnsupportedModelError(f"No installed backend loads {location!r}.{lines}{advice}")
    return BackendUnavailableError("", f"No backend is installed. {get_one}")


def _lines(by_kind: Mapping[str, Sequence[_Objection]], *kinds: str) -> str:
    chosen = [objection for kind in kinds for objection in by_kind.get(kind, ())]
    return "".join(f"\n  {objection.name}: {objection.reason}" for objection in chosen)


def _elsewhere(objections: Sequence[_Objection]) -> str:
    if not objections:
        return ""
    names = ", ".join(objection.name for objection in objections)
    return f"\nNot on this machine: {names} (infer-cli backends says why)."
