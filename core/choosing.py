"""Which backend a model is loaded with when the user names none, and why not the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from core.errors import (
    BackendUnavailableError,
    InvalidModelError,
    ModelAccessError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
    described,
)
from core.extensions import ModelProbe
from core.known_plugins import PREFERENCE, how_to_read
from core.models.damage import INCOMPLETE, NO_PERMISSION
from core.models.files import model_formats, read_config_json, resolve_path
from core.models.gguf import read_gguf
from core.models.stores import model_at
from core.models.weight_files import next_step
from core.protocols import Backend, Capability
from core.types import DiscoveredModel, ModelFormat

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
class Verdict:
    """The backends that load a model, the best first; of none, why, in a few words and at length.

    It is told by headers, as far as backends look: a load may still find more.
    """

    backends: tuple[str, ...] = ()
    why_nobody: str = ""
    reason: str = ""


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
    formats = _formats(location)
    _check_header(location, formats)

    objections: list[_Objection] = []
    for backend, objection in _asked(names, get, location, formats, needed):
        if objection is None:
            skipped = tuple((o.name, o.reason) for o in objections)
            refusals = tuple((o.name, o.reason) for o in objections if o.against == "model")
            assert backend is not None
            return BackendChoice(backend, _why(backend.name, formats), skipped, refusals)
        objections.append(objection)

    raise _nothing_fits(location, formats, objections)


def judge(
    names: Iterable[str],
    get: Callable[[str], Backend],
    path: str | os.PathLike[str],
    found: DiscoveredModel | None = None,
    unavailable: Callable[[Backend], str | None] | None = None,
) -> Verdict:
    """Who loads a model: by its files, and the questions that `choose` asks. Does not raise.

    ``found`` is what discovery knows of it already; ``unavailable`` answers in the place of
    `unavailability`, for a caller who asks of many models.
    """
    location = resolve_path(path)
    found = found or model_at(location)
    try:
        formats = _check_files(location, found)
    except ModelError as error:
        short = found.problem if found else ""
        return Verdict((), short or _in_short(str(error), location), str(error))

    objections: list[_Objection] = []
    able: list[str] = []
    for backend, objection in _asked(names, get, location, formats, None, unavailable):
        if objection is not None:
            objections.append(objection)
        elif backend is not None:
            able.append(backend.name)
    if able:
        return Verdict(tuple(able))
    reason = str(_nothing_fits(location, formats, objections))
    return Verdict((), _of_nobody(location, formats, objections), reason)


def _formats(location: str) -> tuple[ModelFormat, ...]:
    """The formats of a model; of one that is still being downloaded, it says that."""
    try:
        return model_formats(location)
    except ModelNotFoundError:
        found = model_at(location)
        if found is not None and found.problem:
            raise _damaged(location, found) from None
        raise


def _check_files(location: str, found: DiscoveredModel | None) -> tuple[ModelFormat, ...]:
    """The formats of a model. Raises `ModelError` for what is wrong with its files."""
    read = found is None or found.problem.startswith(("broken", NO_PERMISSION))
    if found is not None and found.problem and not read:
        raise _damaged(location, found)

    # What is broken inside, or forbidden, its reader tells best.
    formats = model_formats(location)
    _check_header(location, formats)
    if found is not None and found.problem:
        if found.format == "gguf":
            read_gguf(found.path, tensors=True)
        raise _damaged(location, found)
    if found is None and formats == ("safetensors",):
        raise InvalidModelError(f"{location!r} cannot be loaded: no weights. Download it again.")
    return formats


def _damaged(location: str, found: DiscoveredModel) -> ModelError:
    kind = ModelAccessError if found.problem == NO_PERMISSION else InvalidModelError
    return kind(f"{location!r} cannot be loaded: {found.problem}. {_again(found)}")


def _again(model: DiscoveredModel) -> str:
    if model.problem == NO_PERMISSION:
        return "Change its permissions, or run as a user who may read it."
    if model.problem.startswith("no safetensors"):
        return "Get it in safetensors, or as a GGUF file."
    if step := next_step(model.problem):
        return step
    if model.problem != INCOMPLETE:
        return "Download or convert it again."
    if model.source == "huggingface":
        return f"Go on with: hf download {model.name}"
    return "Let the program that downloads it end its work, or download it again."


def _asked(
    names: Iterable[str],
    get: Callable[[str], Backend],
    location: str,
    formats: Collection[str],
    needed: Capability | None,
    unavailable: Callable[[Backend], str | None] | None = None,
) -> Iterator[tuple[Backend | None, _Objection | None]]:
    """Each backend, and what speaks against it; None in the place of one that is broken."""
    unavailable = unavailable or unavailability
    for name in names:
        try:
            backend = get(name)
            yield backend, _objection(name, backend, location, formats, needed, unavailable)
        except ANYTHING as error:
            yield None, _Objection(name, described(error), "machine")


def own_options(backend: Backend) -> Mapping[str, str]:
    """The load options of a backend's own, and what each does, where it tells them.

    One that has a mapping ``own_options`` does.
    """
    told = getattr(backend, "own_options", {})
    return {str(name): str(what) for name, what in told.items()}


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
    unavailable: Callable[[Backend], str | None],
) -> _Objection | None:
    if not set(formats) & set(backend.formats):
        reads = ", ".join(sorted(backend.formats)) or "nothing"
        reason = f"it reads {reads}; this model is {' and '.join(formats)}"
        return _Objection(name, reason, "format")

    # The cheap questions first: a probe opens the model's files.
    if reason_not := unavailable(backend):
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


_SHORT = 80  # characters of a reason that stands in a table


def _of_nobody(location: str, formats: Collection[str], objections: Sequence[_Objection]) -> str:
    """Why no backend loads a model, in a few words: what the best of them says of it, first."""
    for objection in objections:
        if objection.against == "model":
            return _in_short(objection.reason, location)
    unable = [objection.name for objection in objections if objection.against == "machine"]
    form = " or ".join(formats)
    if unable:
        return f"what reads {form} cannot run here"
    return f"nothing that is installed reads {form}"


def _in_short(reason: str, location: str) -> str:
    """The first sentence of a reason, without the path that everybody knows."""
    for known in (repr(location), location):
        reason = reason.replace(f"{known}/", "").replace(known, "it")
    words = reason.split("\n")[0].split(". ")[0].split(" (")[0].rstrip(".")
    words = words.removeprefix("it cannot be loaded: ").removeprefix("it cannot be used: ")
    return words if len(words) <= _SHORT else f"{words[: _SHORT - 1].rstrip()}…"


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
