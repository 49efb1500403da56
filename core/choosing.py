"""The choice of a backend for a model if the user names none, with reasons."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from core.errors import (
    ANYTHING,
    BackendUnavailableError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
    described,
)
from core.extensions import Deferring, ModelProbe
from core.models.discovery import described_by, describes
from core.models.files import FORMATS, check_exists, resolve_path
from core.models.locating import formats_of, formats_of_found
from core.models.stores import model_at
from core.plugins import PREFERENCE, how_to_read
from core.protocols import Backend, Capability
from core.types import DiscoveredModel, ModelFormat


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """The backend chosen for a model, the reason, and the skipped backends with theirs."""

    backend: Backend
    reason: str
    skipped: tuple[tuple[str, str], ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()
    """The ones of ``skipped`` that can run here but do not support the model."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The backends that can load a model, best first; if none can, a short and a full reason.

    It is based on the files' headers: a load may still fail.
    """

    backends: tuple[str, ...] = ()
    why_nobody: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One backend's answer for a model: it accepts it, or ``against`` is the kind of obstacle.

    ``described`` is its own description of the model, in a format that `core` did not recognise;
    ``unsure``: the backend cannot or did not determine whether the model is in its format.
    """

    name: str
    backend: Backend | None = None
    described: DiscoveredModel | None = None
    against: Literal["", "machine", "format", "operation", "model", "order"] = ""
    reason: str = ""
    unsure: bool = False


def choose(
    names: Iterable[str],
    get: Callable[[str], Backend],
    path: str | os.PathLike[str],
    *needed: Capability,
) -> BackendChoice:
    """Return the first of these backends that is available and supports the format and the model.

    A backend that recognises the model as its own (`core.ModelFinding`) reads its format. The
    backend also supports all of ``needed``; one that defers to others (`deferral`) comes last.
    Raises `BackendUnavailableError` if the backends for the format cannot run here or do not
    support ``needed``, `UnsupportedModelError` if the available ones do not support the model or
    its format, and `ModelNotFoundError`, `ModelAccessError` or `InvalidModelError` for the files
    themselves.
    """
    location = resolve_path(path)
    check_exists(location)
    formats, wrong = _attempted(formats_of, location)

    passed_over: list[_Answer] = []
    for answer in _asked(names, get, location, formats, needed):
        if not answer.against:
            return _choice(answer, formats, passed_over)
        passed_over.append(answer)

    # No other fits: the ones that would leave the model to others.
    for answer in passed_over:
        if answer.against == "order":
            return _choice(answer, formats, [other for other in passed_over if other != answer])
    raise _nothing_fits(location, formats, wrong, passed_over)


def _choice(
    answer: _Answer, formats: Collection[str], passed_over: Iterable[_Answer]
) -> BackendChoice:
    assert answer.backend is not None
    skipped = tuple((other.name, other.reason) for other in passed_over)
    refusals = tuple((o.name, o.reason) for o in passed_over if o.against == "model")
    why = _why(answer.name, _read_by(answer, formats))
    return BackendChoice(answer.backend, why, skipped, refusals)


def judge(
    names: Iterable[str],
    get: Callable[[str], Backend],
    path: str | os.PathLike[str],
    model: DiscoveredModel | None = None,
    unavailable: Callable[[Backend], str | None] | None = None,
) -> Verdict:
    """Return which backends load a model, with the checks that `choose` makes. Does not raise.

    ``model`` is its description from discovery; ``unavailable`` replaces
    `unavailability`, for a caller that checks many models.
    """
    location = resolve_path(path)
    model = model or model_at(location)
    formats, wrong = _attempted(partial(formats_of_found, model=model), location)

    needed = (Capability.ADAPTERS,) if model and model.adapters else ()
    answers = list(_asked(names, get, location, formats, needed, unavailable))
    last = [answer for answer in answers if answer.against == "order"]
    if able := [answer for answer in answers if not answer.against] + last:
        return Verdict(tuple(answer.name for answer in able))
    reason = str(_nothing_fits(location, formats, wrong, answers))
    if wrong is None or _own_formats(answers):
        return Verdict((), _of_nobody(location, formats, answers), reason)
    short = model.problem if model else ""
    return Verdict((), short or _in_short(str(wrong), location), reason)


def _attempted(
    look: Callable[[str], tuple[ModelFormat, ...]], location: str
) -> tuple[tuple[ModelFormat, ...], ModelError | None]:
    """Return the formats that ``look`` recognises at a path, or the error of the model."""
    try:
        return look(location), None
    except ModelError as error:
        return (), error


def _asked(
    names: Iterable[str],
    get: Callable[[str], Backend],
    location: str,
    formats: Collection[str],
    needed: Collection[Capability],
    unavailable: Callable[[Backend], str | None] | None = None,
) -> Iterator[_Answer]:
    """Yield each backend's answer; a broken backend's is its error."""
    unavailable = unavailable or unavailability
    for name in names:
        try:
            backend = get(name)
            yield _answer(name, backend, location, formats, needed, unavailable)
        except ANYTHING as error:
            yield _Answer(name, None, None, "machine", described(error))


def own_options(backend: Backend) -> Mapping[str, str]:
    """Return the backend-specific load options with their descriptions.

    They are the mapping ``own_options`` of the backend; empty if it has none.
    """
    options = getattr(backend, "own_options", {})
    return {str(name): str(what) for name, what in options.items()}


def deferral(backend: Backend) -> str | None:
    """Return why a backend leaves models to others unless it is named; None if it does not."""
    return backend.deferral() if isinstance(backend, Deferring) else None


def unavailability(backend: Backend) -> str | None:
    """Return why a backend cannot run here, also if the check raises; None if it can."""
    try:
        if backend.available():
            return None
        return backend.unavailable_reason() or "it gives no reason"
    except ANYTHING as error:
        return f"its availability check raised {described(error)}"


def _answer(
    name: str,
    backend: Backend,
    location: str,
    formats: Collection[str],
    needed: Collection[Capability],
    unavailable: Callable[[Backend], str | None],
) -> _Answer:
    own: DiscoveredModel | None = None
    if set(formats).isdisjoint(backend.formats):
        own, fault = described_by(backend, location)
        if own is None:
            return _of_another_format(name, backend, formats, fault)
        if own.problem:
            return _Answer(name, backend, None, "format", own.problem)

    # The cheap checks first: a probe opens the model's files.
    if reason_not := unavailable(backend):
        return _Answer(name, backend, own, "machine", reason_not)
    if refused := refusal(backend, location):
        return _Answer(name, backend, own, "model", refused)
    for capability in needed:
        if capability not in backend.capabilities:
            return _Answer(name, backend, own, "operation", f"it does not support {capability}")
    if why_not_first := deferral(backend):
        return _Answer(name, backend, own, "order", why_not_first)
    return _Answer(name, backend, own)


def _of_another_format(
    name: str, backend: Backend, formats: Collection[str], fault: str
) -> _Answer:
    """Return a backend's answer for a model in other formats, or in an unknown format."""
    reads = ", ".join(sorted(backend.formats)) or "nothing"
    decides = describes(backend) or FORMATS.issuperset(backend.formats)
    if fault:
        reason = f"it reads {reads}, and {fault}"
    elif formats:
        reason = f"it reads {reads}; this model is {' and '.join(formats)}"
    elif decides:
        reason = f"it reads {reads}; this is not such a model"
    else:
        reason = f"it reads {reads}; if this is such a model, select it: backend={name!r}"
    return _Answer(name, backend, None, "format", reason, unsure=bool(fault) or not decides)


def _read_by(answer: _Answer, formats: Collection[str]) -> Collection[str]:
    """Return the formats of a model as the backend sees it."""
    return (answer.described.format,) if answer.described else formats


def refusal(backend: Backend, location: str) -> str | None:
    """Return why a backend would not load a model, or None if its probe has no objection."""
    if not isinstance(backend, ModelProbe):
        return None
    try:
        return backend.refusal(location)
    except ANYTHING as error:
        return f"its check of the model raised {described(error)}"


_SHORT = 80  # characters of a reason in a table


def _of_nobody(location: str, formats: Collection[str], answers: Sequence[_Answer]) -> str:
    """Return a short reason why no backend loads a model: the best backend's, if it has one."""
    for answer in answers:
        if answer.against == "model":
            return _in_short(answer.reason, location)
    unable = any(answer.against == "machine" for answer in answers)
    form = " or ".join(formats or _own_formats(answers))
    if unable:
        return f"the backends for {form} cannot run here"
    return f"no installed backend reads {form}"


def _in_short(reason: str, location: str) -> str:
    """Return the first sentence of a reason, without the path, which the reader knows."""
    for known in (repr(location), location):
        reason = reason.replace(f"{known}/", "").replace(known, "it")
    words = reason.split("\n")[0].split(". ")[0].split(" (")[0].rstrip(".")
    words = words.removeprefix("it cannot be loaded: ").removeprefix("it cannot be used: ")
    words = words.removeprefix("Cannot load it: ")
    return words if len(words) <= _SHORT else f"{words[: _SHORT - 1].rstrip()}…"


def _why(name: str, formats: Collection[str]) -> str:
    return (
        f"{name} is the first backend, in the order {', '.join(PREFERENCE)} and then any other, "
        f"that reads {' or '.join(formats)}, can run on this machine and supports the model"
    )


def with_refusals(error: ModelError, choice: BackendChoice) -> ModelError:
    """Return the error of a default load, after the reasons of the backends tried before.

    Their reasons may describe the problem with the model's files better.
    """
    if not choice.refusals:
        return error
    refusal_lines = "\n".join(f"{name}: {reason}" for name, reason in choice.refusals)
    return type(error)(f"{refusal_lines}\n{choice.backend.name}, tried next: {error}")


def _nothing_fits(
    location: str,
    formats: Collection[str],
    wrong: ModelError | None,
    answers: Sequence[_Answer],
) -> BackendUnavailableError | ModelError:
    """Return the error, with the likeliest cause first: the model itself is not supported.

    It is ``wrong`` if `core` recognises no valid model and no backend describes one.
    """
    if wrong is not None:
        formats = _own_formats(answers)
        if not formats:
            return _with_other_formats(wrong, answers)
        answers = [answer for answer in answers if answer.described]

    by_kind: dict[str, list[_Answer]] = {}
    for answer in answers:
        by_kind.setdefault(answer.against, []).append(answer)
    get_one = how_to_read(formats, [answer.name for answer in answers])
    advice = f"\n{get_one}" if get_one else ""
    elsewhere = _elsewhere(by_kind.get("machine", ()))

    if "model" in by_kind:
        lines = _lines(by_kind, "model", "operation", "format") + elsewhere
        return UnsupportedModelError(f"No available backend can load {location!r}:{lines}")
    if "operation" in by_kind:
        lines = _lines(by_kind, "operation", "format") + elsewhere
        what = f"No available backend supports this with {' or '.join(formats)} models:"
        return BackendUnavailableError("", f"{what}{lines}{advice}")
    if "machine" in by_kind:
        lines = _lines(by_kind, "machine", "format")
        what = f"The backends for {location!r} cannot run on this machine:"
        return BackendUnavailableError("", f"{what}{lines}{advice}")
    if "format" in by_kind:
        lines = _lines(by_kind, "format")
        return UnsupportedModelError(f"No installed backend can load {location!r}:{lines}{advice}")
    return BackendUnavailableError("", f"No backend is installed. {get_one}")


def _own_formats(answers: Iterable[_Answer]) -> list[str]:
    """Return the formats in which backends describe the model, each once."""
    return list(dict.fromkeys(a.described.format for a in answers if a.described))


def _with_other_formats(wrong: ModelError, answers: Iterable[_Answer]) -> ModelError:
    """Add to the error of an unknown path the backends that cannot say whether it is theirs."""
    others = [answer for answer in answers if answer.unsure]
    if not others or not isinstance(wrong, ModelNotFoundError):
        return wrong
    return ModelNotFoundError(f"{wrong}{_lines({'format': others}, 'format')}")


def _lines(by_kind: Mapping[str, Sequence[_Answer]], *kinds: str) -> str:
    chosen = [answer for kind in kinds for answer in by_kind.get(kind, ())]
    return "".join(f"\n  {answer.name}: {answer.reason}" for answer in chosen)


def _elsewhere(answers: Sequence[_Answer]) -> str:
    if not answers:
        return ""
    names = ", ".join(answer.name for answer in answers)
    return f"\nNot available on this machine: {names} (see `infer-cli backends`)."
