"""The places where people keep models, and how each one lays them out.

Nothing is downloaded, copied or written. Layouts: huggingface_hub's cache, LM Studio, Ollama,
llama.cpp's cache, and this project's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

from core.errors import CoreError
from core.models.damage import INCOMPLETE
from core.models.discovery import discover
from core.models.files import is_address, open_model_file, read_json_object, resolve_path
from core.models.finding import described_at, one_search
from core.models.listing import expanded, names_in, stat_of
from core.models.ollama import ollama_models, ollama_roots
from core.types import DiscoveredModel

_REPOSITORY = "models--"


def core_models_dir() -> str:
    """Where this project keeps the models that it makes: ``$XDG_CACHE_HOME/core/models``."""
    return os.path.join(_cache_home(), "core", "models")


@one_search()
def discover_stores(examine: bool = True) -> list[DiscoveredModel]:
    """The models of all stores, store by store, each sorted by path; no file twice.

    One that is found in several stores has the names of all of them. Without ``examine`` no more
    is read than names need.

    Never raises for what it meets: a store that is missing or unreadable has no models.
    """
    models: dict[object, DiscoveredModel] = {}
    for model in _all_stores(examine):
        first = models.setdefault(_identity(model), model)
        names = dict.fromkeys((*first.names, *model.names))
        models[_identity(model)] = replace(first, names=tuple(names))
    return list(models.values())


def _identity(model: DiscoveredModel) -> object:
    """What a name stands for: the file, and the other files that belong to it."""
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
    """The models in a directory: as deep as its layout goes where it is a store, else ``depth``.

    Raises like `core.models.discovery.discover`.
    """
    base = resolve_path(base_dir)
    plain = discover(base, depth)
    stored = list(_store_at(base))
    seen = {os.path.realpath(model.path) for model in stored}
    others = [model for model in plain if os.path.realpath(model.path) not in seen]
    return sorted([*stored, *others], key=lambda model: model.path)


def model_at(path: str | os.PathLike[str]) -> DiscoveredModel | None:
    """The one model at a path itself, be it whole or not; None where there are none, or several.

    Never raises for what it meets.
    """
    location = resolve_path(path)
    if is_address(location):
        return described_at(location, "address")
    repository = _repository_of(location)
    try:
        found = list(_repository(repository)) if repository else discover(location, 0)
    except CoreError:
        return None
    here = [model for model in found if model.path == location]
    return (here or found)[0] if len(here or found) == 1 else None


def _store_at(base: str) -> Iterator[DiscoveredModel]:
    """The models of the store that a directory is, or holds; none where it is no store."""
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
    """The models of a store, called by their paths below its ``root``, behind ``prefix``."""
    try:
        found = discover(root, depth, source, examine)
    except CoreError:
        return []
    return [_named(model, os.path.relpath(model.path, root), prefix) for model in found]


def _named(model: DiscoveredModel, below: str, prefix: str) -> DiscoveredModel:
    """The model with its names: all of its path in the store, its last part, its folder."""
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
    """The models of one repository; what is not all there is called so."""
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

    # A GGUF file is whole or is not there; of a directory other files may be on their way.
    told = [
        replace(model, problem=INCOMPLETE) if model.format == "safetensors" else model
        for model in models
    ]
    yield from told
    if not any(model.problem for model in told):
        where = snapshots[0] if len(snapshots) == 1 else repository
        yield from _incomplete(where, partly, published, bool(models))


def _incomplete(
    path: str, blobs: Sequence[str], published: str, is_gguf: bool
) -> Iterator[DiscoveredModel]:
    """What stands for a download of which no weights are there."""
    stats = [found for blob in (*blobs, path) if (found := stat_of(blob))]
    size = sum(found.st_size for found in stats[: len(blobs)])
    yield DiscoveredModel(
        *(path, "", 0, 0, len(blobs), "gguf" if is_gguf else "safetensors", size, "huggingface"),
        names=tuple(dict.fromkeys((published, published.split("/")[-1]))),
        modified=max((found.st_mtime for found in stats), default=0.0),
        problem=INCOMPLETE,
    )


def _unfinished_blobs(repository: str) -> list[str]:
    """What is being downloaded, or was when it was interrupted; not what came in whole since."""
    blobs = os.path.join(repository, "blobs")
    names = set(names_in(blobs))
    unfinished = sorted(name for name in names if name.endswith(".incomplete"))
    return [os.path.join(blobs, name) for name in unfinished if name.split(".")[0] not in names]


def _repository_of(location: str) -> str:
    """The repository that a path is, or is a snapshot of; empty for any other."""
    above, last = os.path.split(location)
    above, folder = os.path.split(above)
    if last.startswith(_REPOSITORY):
        return location
    is_snapshot = folder == "snapshots" and os.path.basename(above).startswith(_REPOSITORY)
    return above if is_snapshot else ""


def snapshots_of(repository: str) -> list[str]:
    """The snapshot that ``refs/main`` names; all of them when there is no such ref."""
    snapshots = os.path.join(repository, "snapshots")
    try:
        with open_model_file(os.path.join(repository, "refs", "main")) as file:
            commit = file.read(256).decode("ascii").strip()
    except (CoreError, OSError, ValueError):
        return [os.path.join(snapshots, name) for name in names_in(snapshots)]
    return [os.path.join(snapshots, name) for name in names_in(snapshots) if name == commit]


def _links_hold(snapshot: str) -> bool:
    """Whether every link has its file."""
    return all(os.path.exists(os.path.join(snapshot, name)) for name in names_in(snapshot))


# --------------------------------------------------------------------------- LM Studio


def _lm_studio_folders() -> list[str]:
    """Where LM Studio keeps models: in its home, and where that home's settings say.

    ``~/.lmstudio-home-pointer`` holds the path of its home (``findLMStudioHome.ts`` of
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
