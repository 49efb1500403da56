"""Which backend a model is loaded with when the user names none, and why not the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from core.describing import described_by, describes
from core.errors import (
    ANYTHING,
    BackendUnavailableError,
    ModelError,
    ModelNotFoundError,
    UnsupportedModelError,
    described,
)
from core.extensions import ModelProbe
from core.known_plugins import PREFERENCE, how_to_read
from core.models.files import FORMATS, check_exists, resolve_path
from core.models.recognised import formats_of, formats_of_found
from core.models.stores import model_at
from core.protocols import Backend, Capability
from core.types import DiscoveredModel, ModelFormat


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
class _Answer:
    """The result of asking one backend for a model: it takes it, or ``against`` it is something.

    ``described`` is its own description of the model, in a format that `core` did not recognise;
    ``unsure``: it cannot say, or failed to say, whether such a model is there.
    """

    name: str
    backend: Backend | None = None
    described: DiscoveredModel | None = None
    against: Literal["", "machine", "format", "operation", "model"] = ""
    reason: str = ""
    unsure: bool = False


def choose(
    names: Iterable[str],
    get: Callable[[str], Backend],
    path: str | os.PathLike[str],
    needed: Capability | None = None,
) -> BackendChoice:
    """The first of these backends that is available, reads the format and takes the model.

    One that describes the model as its own (`core.ModelFinding`) reads its format. It offers what
    is ``needed``. Raises `BackendUnavailableError` when those that read the format
    cannot run here, or do not offer that, `UnsupportedModelError` when those that can refuse the
    model or its format, and
    `ModelNotFoundError`, `ModelAccessError` or `InvalidModelError` for the files themselves.
    """
    location = resolve_path(path)
    check_exists(location)
    formats, wrong = _attempted(formats_of, location)

    passed_over: list[_Answer] = []
    for answer in _asked(names, get, location, formats, needed):
        if answer.backend is not None and not answer.against:
            skipped = tuple((other.name, other.reason) for other in passed_over)
            refusals = tuple((o.name, o.reason) for o in passed_over if o.against == "model")
            why = _why(answer.name, _read_by(answer, formats))
            return BackendChoice(answer.backend, why, skipped, refusals)
        passed_over.append(answer)

    raise _nothing_fits(location, formats, wrong, passed_over)


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
    formats, wrong = _attempted(partial(formats_of_found, found=found), location)

    answers = list(_asked(names, get, location, formats, None, unavailable))
    if able := tuple(answer.name for answer in answers if not answer.against):
        return Verdict(able)
    reason = str(_nothing_fits(location, formats, wrong, answers))
    if wrong is None or _own_formats(answers):
        return Verdict((), _of_nobody(location, formats, answers), reason)
    short = found.problem if found else ""
    return Verdict((), short or _in_short(str(wrong), location), reason)


def _attempted(
    look: Callable[[str], tuple[ModelFormat, ...]], location: str
) -> tuple[tuple[ModelFormat, ...], ModelError | None]:
    """Return the formats that ``look`` recognises at a path, or why there is no sound model."""
    try:
        return look(location), None
    except ModelError as error:
        return (), error


def _asked(
    names: Iterable[str],
    get: Callable[[str], Backend],
    location: str,
    formats: Collection[str],
    needed: Capability | None,
    unavailable: Callable[[Backend], str | None] | None = None,
) -> Iterator[_Answer]:
    """Yield each backend's answer, that of a broken one among them."""
    unavailable = unavailable or unavailability
    for name in names:
        try:
            backend = get(name)
            yield _answer(name, backend, location, formats, needed, unavailable)
        except ANYTHING as error:
            yield _Answer(name, None, None, "machine", described(error))


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


def _answer(
    name: str,
    backend: Backend,
    location: str,
    formats: Collection[str],
    needed: Capability | None,
    unavailable: Callable[[Backend], str | None],
) -> _Answer:
    own: DiscoveredModel | None = None
    if set(formats).isdisjoint(backend.formats):
        own, fault = described_by(backend, location)
        if own is None:
            return _of_another_format(name, backend, formats, fault)
        if own.problem:
            return _Answer(name, backend, None, "format", own.problem)

    # The cheap questions first: a probe opens the model's files.
    if reason_not := unavailable(backend):
        return _Answer(name, backend, own, "machine", reason_not)
    if refused := refusal(backend, location):
        return _Answer(name, backend, own, "model", refused)
    if needed is not None and needed not in backend.capabilities:
        return _Answer(name, backend, own, "operation", f"it does not offer {needed}")
    return _Answer(name, backend, own)


def _of_another_format(
    name: str, backend: Backend, formats: Collection[str], fault: str
) -> _Answer:
    """Return the answer of a backend to a model in formats of others, or in none that is known."""
    reads = ", ".join(sorted(backend.formats)) or "nothing"
    says = describes(backend) or FORMATS.issuperset(backend.formats)
    if fault:
        reason = f"it reads {reads}, and {fault}"
    elif formats:
        reason = f"it reads {reads}; this model is {' and '.join(formats)}"
    elif says:
        reason = f"it reads {reads}, and this is not such a model"
    else:
        reason = f"it reads {reads}; if this is such a model, name it: backend={name!r}"
    return _Answer(name, backend, None, "format", reason, unsure=bool(fault) or not says)


def _read_by(answer: _Answer, formats: Collection[str]) -> Collection[str]:
    """Return the formats of a model as the backend sees it."""
    return (answer.described.format,) if answer.described else formats


def refusal(backend: Backend, location: str) -> str | None:
    """Why a backend would not load a model, as far as it can tell beforehand."""
    if not isinstance(backend, ModelProbe):
        return None
    try:
        return backend.refusal(location)
    except ANYTHING as error:
        return f"asking whether it takes the model raised {described(error)}"


_SHORT = 80  # characters of a reason that stands in a table


def _of_nobody(location: str, formats: Collection[str], answers: Sequence[_Answer]) -> str:
    """Why no backend loads a model, in a few words: what the best of them says of it, first."""
    for answer in answers:
        if answer.against == "model":
            return _in_short(answer.reason, location)
    unable = any(answer.against == "machine" for answer in answers)
    form = " or ".join(formats or _own_formats(answers))
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
    location: str,
    formats: Collection[str],
    wrong: ModelError | None,
    answers: Sequence[_Answer],
) -> BackendUnavailableError | ModelError:
    """The error, with what may be the cause first: a refusal of the model itself.

    It is ``wrong`` where `core` recognises no sound model and no backend describes one.
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
    return f"\nNot on this machine: {names} (infer-cli backends says why)."
