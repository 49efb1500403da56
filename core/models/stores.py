"""The usual stores of models, and their layouts.

Nothing is downloaded, copied or written. Layouts: huggingface_hub's cache, LM Studio, Ollama,
llama.cpp's cache, and this project's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.errors import CoreError
from core.models.discovery import described_at, discover, one_search
from core.models.files import (
    expanded,
    is_address,
    names_in,
    open_model_file,
    read_json_object,
    resolve_path,
    stat_of,
)
from core.models.ollama import ollama_models, ollama_roots
from core.models.weight_files import INCOMPLETE
from core.types import DiscoveredModel

_REPOSITORY = "models--"


def core_models_dir() -> str:
    """Return the folder of the models that this project makes: ``$XDG_CACHE_HOME/core/models``."""
    return os.path.join(_cache_home(), "core", "models")


@one_search()
def discover_stores(examine: bool = True) -> list[DiscoveredModel]:
    """Return the models of all stores, store by store, each sorted by path; no file twice.

    A model in several stores has all of its names. Without ``examine`` only the data needed for
    names is read.

    Never raises for files: a missing or unreadable store has no models.
    """
    models: dict[object, DiscoveredModel] = {}
    for model in _all_stores(examine):
        first = models.setdefault(_identity(model), model)
        names = dict.fromkeys((*first.names, *model.names))
        models[_identity(model)] = replace(first, names=tuple(names))
    return list(models.values())


def _identity(model: DiscoveredModel) -> object:
    """Return the identity of a model: its file, and its other parts."""
    return os.path.realpath(model.path), model.names if model.parts else ()


def _all_stores(examine: bool) -> Iterator[DiscoveredModel]:
    yield from _below(core_models_dir(), 1, "core", examine)
    yield from _hugging_face(_hugging_face_root(), examine)
    for folder in _lm_studio_folders():
        yield from _below(folder, 2, "lm-studio", examine)
    for root in dict.fromkeys(ollama_roots()):
        yield from ollama_models(root, examine)
    yield from _below(_llama_cpp_root(), 1, "llama.cpp", examine)


@one_search()
def discover_in(base_dir: str | os.PathLike[str], depth: int = 1) -> list[DiscoveredModel]:
    """Return the models in a directory: a store completely, any other down to ``depth`` levels.

    Raises like `core.models.discovery.discover`.
    """
    base = resolve_path(base_dir)
    plain = discover(base, depth)
    stored = list(_store_at(base))
    seen = {os.path.realpath(model.path) for model in stored}
    others = [model for model in plain if os.path.realpath(model.path) not in seen]
    return sorted([*stored, *others], key=lambda model: model.path)


def model_at(path: str | os.PathLike[str]) -> DiscoveredModel | None:
    """Return the model at a path, complete or not; None unless there is exactly one.

    Never raises for files.
    """
    location = resolve_path(path)
    if is_address(location):
        return described_at(location, "address")
    repository = _repository_of(location)
    try:
        models = list(_repository(repository)) if repository else discover(location, 0)
    except CoreError:
        return None
    here = [model for model in models if model.path == location]
    return (here or models)[0] if len(here or models) == 1 else None


def _store_at(base: str) -> Iterator[DiscoveredModel]:
    """Yield the models of the store that a directory is, or contains; else nothing."""
    if _repository_of(base) == base:
        yield from _repository(base)
    for root in (base, os.path.join(base, "hub")):
        yield from _hugging_face(root)
    for root in (base, os.path.join(base, "models")):
        if {"blobs", "manifests"} <= set(names_in(root)):
            yield from ollama_models(root)
        is_named_so = root.split(os.sep)[-2:] in (["lm-studio", "models"], [".lmstudio", "models"])
        if is_named_so or root in _lm_studio_folders():
            yield from _below(root, 2, "lm-studio")


def _below(
    root: str, depth: int, source: str, examine: bool = True, prefix: str = ""
) -> list[DiscoveredModel]:
    """Return the models of a store, named by ``prefix`` and their paths below its ``root``."""
    try:
        models = discover(root, depth, source, examine)
    except CoreError:
        return []
    return [_named(model, os.path.relpath(model.path, root), prefix) for model in models]


def _named(model: DiscoveredModel, below: str, prefix: str) -> DiscoveredModel:
    """Return the model with its names: its full path in the store, its last part, its folder."""
    parts = [part for part in (*prefix.split("/"), *below.split(os.sep)) if part not in ("", ".")]
    names = ["/".join(parts), parts[-1]] if parts else []
    if model.format == "gguf":
        names.append("/".join(parts[:-1]))
    return replace(model, names=tuple(dict.fromkeys(filter(None, names))))


# --------------------------------------------------------------------------- Hugging Face


def _hugging_face_root() -> str:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return expanded(os.environ[name])
    if os.environ.get("HF_HOME"):
        return os.path.join(expanded(os.environ["HF_HOME"]), "hub")
    return os.path.join(_cache_home(), "huggingface", "hub")


def _hugging_face(root: str, examine: bool = True) -> Iterator[DiscoveredModel]:
    for name in names_in(root):
        if name.startswith(_REPOSITORY):
            yield from _repository(os.path.join(root, name), examine)


def _repository(repository: str, examine: bool = True) -> Iterator[DiscoveredModel]:
    """Yield the models of one repository; incomplete ones have that ``problem``."""
    published = os.path.basename(repository).removeprefix(_REPOSITORY).replace("--", "/")
    snapshots = snapshots_of(repository)
    models = [
        model
        for snapshot in snapshots
        for model in _below(snapshot, 1, "huggingface", examine, published)
    ]
    partly = _unfinished_blobs(repository)
    if not partly and all(map(_links_hold, snapshots)):
        yield from models
        return

    # A GGUF file is complete or missing; other files of a directory may still be downloading.
    marked = [
        replace(model, problem=INCOMPLETE) if model.format == "safetensors" else model
        for model in models
    ]
    yield from marked
    if not any(model.problem for model in marked):
        where = snapshots[0] if len(snapshots) == 1 else repository
        yield from _incomplete(where, partly, published, bool(models))


def _incomplete(
    path: str, blobs: Sequence[str], published: str, is_gguf: bool
) -> Iterator[DiscoveredModel]:
    """Yield a model for a download that has no weights yet."""
    stats = [status for blob in (*blobs, path) if (status := stat_of(blob))]
    size = sum(status.st_size for status in stats[: len(blobs)])
    yield DiscoveredModel(
        *(path, "", 0, 0, len(blobs), "gguf" if is_gguf else "safetensors", size, "huggingface"),
        names=tuple(dict.fromkeys((published, published.split("/")[-1]))),
        modified=max((status.st_mtime for status in stats), default=0.0),
        problem=INCOMPLETE,
    )


def _unfinished_blobs(repository: str) -> list[str]:
    """Return the blobs of running or interrupted downloads, except those completed since."""
    blobs = os.path.join(repository, "blobs")
    names = set(names_in(blobs))
    unfinished = sorted(name for name in names if name.endswith(".incomplete"))
    return [os.path.join(blobs, name) for name in unfinished if name.split(".")[0] not in names]


def _repository_of(location: str) -> str:
    """Return the repository that a path is, or is a snapshot of; empty for other paths."""
    above, last = os.path.split(location)
    above, folder = os.path.split(above)
    if last.startswith(_REPOSITORY):
        return location
    is_snapshot = folder == "snapshots" and os.path.basename(above).startswith(_REPOSITORY)
    return above if is_snapshot else ""


def snapshots_of(repository: str) -> list[str]:
    """Return the snapshot that ``refs/main`` names, or all of them without that ref."""
    snapshots = os.path.join(repository, "snapshots")
    try:
        with open_model_file(os.path.join(repository, "refs", "main")) as file:
            commit = file.read(256).decode("ascii").strip()
    except (CoreError, OSError, ValueError):
        return [os.path.join(snapshots, name) for name in names_in(snapshots)]
    return [os.path.join(snapshots, name) for name in names_in(snapshots) if name == commit]


def _links_hold(snapshot: str) -> bool:
    """Return whether the target of every link exists."""
    return all(os.path.exists(os.path.join(snapshot, name)) for name in names_in(snapshot))


# --------------------------------------------------------------------------- LM Studio


def _lm_studio_folders() -> list[str]:
    """Return LM Studio's model folders: in its home, and the one in that home's settings.

    ``~/.lmstudio-home-pointer`` has the path of its home (``findLMStudioHome.ts`` of
    https://github.com/lmstudio-ai/lmstudio.js), ``settings.json`` there the ``downloadsFolder``.
    """
    homes = (*_pointed_home(), expanded("~/.lmstudio"), expanded("~/.cache/lm-studio"))
    places = [(os.path.join(home, "models"), *_downloads(home)) for home in homes]
    return list(dict.fromkeys(place for pair in places for place in pair))


def _pointed_home() -> Iterator[str]:
    try:
        with open_model_file(expanded("~/.lmstudio-home-pointer")) as file:
            lines = file.read(4096).decode("utf-8-sig").strip().splitlines()
    except (CoreError, OSError, ValueError):
        return
    yield from map(expanded, lines[:1])


def _downloads(home: str) -> Iterator[str]:
    try:
        folder = read_json_object(os.path.join(home, "settings.json")).get("downloadsFolder")
    except CoreError:
        return
    if isinstance(folder, str) and folder:
        yield expanded(folder)


# --------------------------------------------------------------------------- llama.cpp


def _llama_cpp_root() -> str:
    if os.environ.get("LLAMA_CACHE"):
        return expanded(os.environ["LLAMA_CACHE"])
    if sys.platform == "darwin":
        return expanded("~/Library/Caches/llama.cpp")
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA", expanded("~")), "llama.cpp")
    return os.path.join(_cache_home(), "llama.cpp")


# --------------------------------------------------------------------------- paths


def _cache_home() -> str:
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
