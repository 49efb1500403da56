"""Models below a directory, read from config.json and headers; weights are not opened.

Models in other formats are described by the backends that read them (`core.ModelFinding`), which
`core.registry` sets when it is imported. Their answers are checked here, and their faults are
logged, because ``describe_model`` must not raise.

A broken or unreadable model is described as far as possible, with its ``problem``, so that one bad
model never hides another.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import TypeAlias, cast

from core import log
from core.errors import ANYTHING, CoreError, described
from core.extensions import ModelFinding
from core.models.described import gguf_model, pickled_model, safetensors_model
from core.models.files import is_gguf_name, resolve_path, typed_errors
from core.models.gguf import SHARD
from core.models.weight_files import INCOMPLETE, finished_name, missing_shards, not_gguf
from core.protocols import Backend
from core.types import DiscoveredModel

Describer: TypeAlias = Callable[[str], DiscoveredModel | None]
"""Function that returns one backend's description of a path, or None. Does not raise."""

_sources: list[Callable[[], Sequence[Describer]]] = []
_SEARCH: ContextVar[Sequence[Describer] | None] = ContextVar("describers", default=None)
_PICKLE = re.compile(r"pytorch_model.*\.bin|consolidated.*\.pth")  # which no backend reads


@dataclass(frozen=True, slots=True)
class _Directory:
    path: str
    real: str  # without links, so that none is visited twice
    is_link: bool = False


@dataclass(slots=True)
class _Set:
    """The files of one GGUF model, and whether one of them is still being downloaded."""

    files: dict[str, os.stat_result] = field(default_factory=dict)
    unfinished: bool = False


def describe_with(source: Callable[[], Sequence[Describer]]) -> None:
    """Set the source of the describers; it is called for each search."""
    _sources[:] = [source]


@contextmanager
def one_search() -> Iterator[None]:
    """Fetch the describers once for all directories of a block; also a decorator."""
    token = _SEARCH.set(_describers())
    try:
        yield
    finally:
        _SEARCH.reset(token)


def _describers() -> Sequence[Describer]:
    known = _SEARCH.get()
    if known is not None:
        return known
    return [describe for source in _sources for describe in source()]


@one_search()
def discover(
    base_dir: str | os.PathLike[str],
    depth: int = 1,
    source: str = "directory",
    examine: bool = True,
) -> list[DiscoveredModel]:
    """Return the models in ``base_dir`` and ``depth`` directory levels below, sorted by path.

    A ``base_dir`` that is itself a model comes first. Hidden directories are skipped; links to
    directories are followed, each target once. Without ``examine``, only the data needed to
    recognise models is read. Raises `ModelNotFoundError` and `ModelAccessError` if ``base_dir``
    itself cannot be listed, and nothing else.
    """
    base = resolve_path(base_dir)
    with typed_errors(base):
        mode = os.stat(base).st_mode
        is_file = not stat.S_ISDIR(mode)
        os.listdir(os.path.dirname(base) if is_file else base)
    if is_file:
        return _of_file(base, source, examine) if stat.S_ISREG(mode) else []
    models = [
        model
        for directory, entries in _walk(base, depth)
        for model in _models_in(directory, entries, source, examine)
    ]
    return sorted(models, key=lambda model: model.path)


def _of_file(path: str, source: str, examine: bool) -> list[DiscoveredModel]:
    """Return the model whose first file this is; the name of a GGUF file does not matter."""
    entries = _listing(os.path.dirname(path))
    named = [entry for entry in entries if _belongs(entry.name, os.path.basename(path))]
    models = [model for model in _gguf_models(named, source, examine) if model.path == path]
    described = filter(None, [described_at(path, source)])
    return joined(models or _unnamed(path, source, examine), described)


def _belongs(name: str, wanted: str) -> bool:
    """Return whether a file belongs, or will once downloaded, to the same model as another."""
    return _key(finished_name(name) or name) == _key(finished_name(wanted) or wanted)


def _unnamed(path: str, source: str, examine: bool) -> list[DiscoveredModel]:
    """Return a GGUF file with another suffix, such as Ollama's, complete or partial."""
    unfinished = bool(finished_name(os.path.basename(path)))
    try:
        if not_gguf(path):
            return []
        status = os.stat(path)
    except (CoreError, OSError):
        return []
    problem = INCOMPLETE if unfinished else ""
    return list(gguf_model([(path, status)], source, problem, examine))


def _walk(base: str, depth: int) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    # Level by level, links last in each: a directory is met first where it is nearest, and real.
    level = [_Directory(base, os.path.realpath(base))]
    seen: set[str] = set()

    for remaining in range(depth, -1, -1):
        below: list[_Directory] = []
        if not level:
            return

        for directory in level:
            if directory.real in seen:
                continue
            seen.add(directory.real)
            entries = _listing(directory.path)
            yield directory.path, entries
            if remaining:
                below += _subdirectories(directory, entries)

        level = sorted(below, key=lambda directory: (directory.is_link, directory.path))


def _listing(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except OSError:
        return []


def _subdirectories(parent: _Directory, entries: list[os.DirEntry[str]]) -> Iterator[_Directory]:
    for entry in entries:
        if _is_directory(entry):
            is_link = entry.is_symlink()
            real = os.path.join(parent.real, entry.name)
            yield _Directory(entry.path, os.path.realpath(real) if is_link else real, is_link)


def _models_in(
    directory: str, entries: list[os.DirEntry[str]], source: str, examine: bool
) -> list[DiscoveredModel]:
    files = [entry.path for entry in entries if _is_file(entry)]
    known = _models_among(entries, source, examine)
    return joined(known, described_in(directory, files, source))


def _models_among(
    entries: list[os.DirEntry[str]], source: str, examine: bool
) -> Iterator[DiscoveredModel]:
    if any(entry.name == "config.json" and _file(entry) for entry in entries):
        yield from _safetensors_model(entries, source, examine)
    yield from _gguf_models(entries, source, examine)


def _safetensors_model(
    entries: list[os.DirEntry[str]], source: str, examine: bool
) -> Iterator[DiscoveredModel]:
    whole: dict[str, tuple[str, os.stat_result]] = {}
    parts: dict[str, tuple[str, os.stat_result]] = {}
    for entry in entries:
        finished = finished_name(entry.name)
        name = finished or entry.name
        if name.endswith(".safetensors") and (status := _file(entry)):
            (parts if finished else whole)[name] = (entry.path, status)

    # Weights that are complete, being downloaded, or in a format that is never read.
    if files := {**parts, **whole}:
        partly = parts.keys()
        yield safetensors_model(list(files.values()), source, partly, examine)
    elif pickles := [
        (entry.path, status)
        for entry in entries
        if _PICKLE.fullmatch(entry.name) and (status := _file(entry))
    ]:
        yield pickled_model(pickles, source)


def _gguf_models(
    entries: Iterable[os.DirEntry[str]], source: str, examine: bool
) -> Iterator[DiscoveredModel]:
    sets: dict[tuple[str, int], _Set] = {}
    for entry in entries:
        finished = finished_name(entry.name)
        name = finished or entry.name
        if is_gguf_name(name) and (status := _file(entry)):
            among = sets.setdefault(_key(name), _Set())
            among.files[entry.path] = status
            among.unfinished |= bool(finished)

    for (_, count), among in sets.items():
        # Complete files come before partial ones.
        files = sorted(among.files.items(), key=lambda item: (bool(finished_name(item[0])), item))
        problem = INCOMPLETE if among.unfinished else ""
        if len(files) < count:
            problem = problem or missing_shards(count - len(files), count)
        yield from gguf_model(files[:count], source, problem, examine)


def _key(name: str) -> tuple[str, int]:
    """Return the key that the files of one model share: their name stem, and their number."""
    shard = SHARD.match(name)
    return (shard["stem"], int(shard["count"]) or 1) if shard else (name, 1)


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


def _file(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat() if entry.is_file() else None
    except OSError:
        return None


# --------------------------------------------------------------------------- described by backends


def described_at(path: str, source: str) -> DiscoveredModel | None:
    """Return the model at a path, described by the first backend that recognises it."""
    models = (_placed(model, source) for describe in _describers() if (model := describe(path)))
    return next(iter(joined([], models)), None)


def described_in(directory: str, files: Sequence[str], source: str) -> Iterator[DiscoveredModel]:
    """Yield each backend's description of a directory, or else of each of these files in it."""
    for describe in _describers():
        if model := describe(directory):
            yield _placed(model, source)
            continue
        yield from (_placed(model, source) for file in files if (model := describe(file)))


def joined(
    known: Iterable[DiscoveredModel], described: Iterable[DiscoveredModel]
) -> list[DiscoveredModel]:
    """Combine the models that `core` knows with those that backends describe; each path once.

    The first description of a path is used, unless it has a problem and a later one has none.
    """
    models = {model.path: model for model in known}
    for model in described:
        first = models.setdefault(model.path, model)
        if first.problem and not model.problem:
            models[model.path] = model
    return list(models.values())


def _placed(model: DiscoveredModel, source: str) -> DiscoveredModel:
    """Fill in the fields that the backend cannot know, or may omit."""
    modified = model.modified or _modified(model.path)
    return replace(model, source=source, names=(), modified=modified)


def _modified(path: str) -> float:
    with suppress(OSError, ValueError):  # an address, a null character
        return os.stat(path).st_mtime
    return 0.0


_USUAL = DiscoveredModel("", "", 0, 0, 0, "", 0, "")  # a value of the right type for each field


def describes(backend: Backend) -> bool:
    """Return whether a backend describes models (`core.ModelFinding`). Does not raise."""
    with suppress(*ANYTHING):  # a property of the backend may raise
        return isinstance(backend, ModelFinding)
    return False


def described_by(backend: Backend, path: str) -> tuple[DiscoveredModel | None, str]:
    """Return a backend's description of a path, and the fault if its answer is invalid.

    Both are empty if the path is not one of its models, and for a backend that describes none.
    Does not raise.
    """
    return _asked(backend, path) if describes(backend) else (None, "")


def describer(backend: Backend) -> Describer:
    """Return `described_by` of a backend that describes models; its first fault is logged."""
    faults: list[str] = []

    def describe(path: str) -> DiscoveredModel | None:
        model, fault = _asked(backend, path)
        if fault and not faults:
            log.misbehaved(backend.name, fault)
            faults.append(fault)
        return model

    return describe


def _asked(backend: Backend, path: str) -> tuple[DiscoveredModel | None, str]:
    finder = cast("ModelFinding", backend)
    try:
        model = finder.describe_model(path)
        fault = "" if model is None else _fault(model, path, backend)
    except ANYTHING as error:
        return None, f"describe_model({path!r}) raised {described(error)}"
    return (None, f"describe_model({path!r}) returned {fault}") if fault else (model, "")


def _fault(model: object, path: str, backend: Backend) -> str:
    """Return the fault of a description, for the backend's author; empty for a valid one."""
    if not isinstance(model, DiscoveredModel):
        return f"a {type(model).__name__}, not a core.DiscoveredModel"
    if model.path != path:
        return f"a model of another path ({model.path!r})"
    for item in fields(model):
        value, usual = getattr(model, item.name), getattr(_USUAL, item.name)
        if not isinstance(value, int | float if isinstance(usual, float) else type(usual)):
            return f"a model whose {item.name} is {value!r}"
    if model.format not in backend.formats:
        return f"a model of the format {model.format!r}, which is not one of its formats"
    return ""
