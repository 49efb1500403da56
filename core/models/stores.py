"""The places where people keep models, and how each one lays them out.

Nothing is downloaded, copied or written. Layouts: huggingface_hub's cache, LM Studio, Ollama,
llama.cpp's cache, and this project's own.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from core.errors import CoreError
from core.models.damage import INCOMPLETE, finished_name
from core.models.described import gguf_model
from core.models.discovery import discover
from core.models.files import is_address, open_model_file, read_json_object, resolve_path
from core.models.finding import described_at, one_search
from core.types import DiscoveredModel

_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
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
    found: dict[str, DiscoveredModel] = {}
    for model in _all_stores(examine):
        first = found.setdefault(os.path.realpath(model.path), model)
        names = dict.fromkeys((*first.names, *model.names))
        found[os.path.realpath(model.path)] = replace(first, names=tuple(names))
    return list(found.values())


def _all_stores(examine: bool) -> Iterator[DiscoveredModel]:
    yield from _below(core_models_dir(), 1, "core", examine)
    yield from _hugging_face(_hugging_face_root(), examine)
    for root in (("~", ".lmstudio", "models"), ("~", ".cache", "lm-studio", "models")):
        yield from _below(_expand(os.path.join(*root)), 2, "lm-studio", examine)
    for root_dir in _ollama_roots():
        yield from _ollama(root_dir, examine)
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
        if {"blobs", "manifests"} <= set(_names(root)):
            yield from _ollama(root)
        if root.split(os.sep)[-2:] in (["lm-studio", "models"], [".lmstudio", "models"]):
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
            return _expand(os.environ[name])
    if os.environ.get("HF_HOME"):
        return os.path.join(_expand(os.environ["HF_HOME"]), "hub")
    return os.path.join(_cache_home(), "huggingface", "hub")


def _hugging_face(root: str, examine: bool = True) -> Iterator[DiscoveredModel]:
    for name in _names(root):
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
    stats = [found for blob in (*blobs, path) if (found := _stat(blob))]
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
    names = set(_names(blobs))
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
        return [os.path.join(snapshots, name) for name in _names(snapshots)]
    return [os.path.join(snapshots, name) for name in _names(snapshots) if name == commit]


def _links_hold(snapshot: str) -> bool:
    """Whether every link has its file."""
    return all(os.path.exists(os.path.join(snapshot, name)) for name in _names(snapshot))


# --------------------------------------------------------------------------- Ollama


def _ollama_roots() -> list[str]:
    if os.environ.get("OLLAMA_MODELS"):
        return [_expand(os.environ["OLLAMA_MODELS"])]
    # The second is the home of the service that its installer sets up on Linux.
    return [_expand("~/.ollama/models"), "/usr/share/ollama/.ollama/models"]


def _ollama(root: str, examine: bool = True) -> Iterator[DiscoveredModel]:
    manifests = os.path.join(root, "manifests")
    names: dict[str, list[str]] = {}  # of each blob: tags may share one
    for manifest in _files_below(manifests, 4):  # host/space/name/tag
        for blob in _ollama_blobs(root, manifest):
            names.setdefault(blob, []).extend(_ollama_names(os.path.relpath(manifest, manifests)))
    for path in sorted(names):
        for model in _ollama_model(path, examine):
            yield replace(model, names=tuple(names[path]))
    yield from _ollama_pulls(os.path.join(root, "blobs"), set(names))


def _ollama_pulls(blobs: str, named: Collection[str]) -> Iterator[DiscoveredModel]:
    """Models that are being pulled, or were when it was interrupted: they have no name yet."""
    for name in _names(blobs):
        path = os.path.join(blobs, name)
        if _DIGEST.fullmatch(finished_name(name)) and path.removesuffix("-partial") not in named:
            yield from discover(path, 0, "ollama", examine=False)


def _ollama_names(manifest: str) -> Iterator[str]:
    """``name:tag``, as Ollama says it; the tag ``latest`` may be left out."""
    *space, name, tag = manifest.split(os.sep)
    if space[:1] == ["registry.ollama.ai"]:  # the place that Ollama means where none is named
        space = [part for part in space[1:] if part != "library"]
    called = "/".join([*space, name])
    yield f"{called}:{tag}"
    if tag == "latest":
        yield called


def _ollama_blobs(root: str, manifest: str) -> Iterator[str]:
    try:
        layers = read_json_object(manifest).get("layers")
    except CoreError:
        return
    for layer in layers if isinstance(layers, list) else []:
        if not isinstance(layer, dict) or layer.get("mediaType") != _OLLAMA_MODEL:
            continue
        # Only a digest makes a file name: a manifest cannot point elsewhere.
        if match := _DIGEST.fullmatch(str(layer.get("digest"))):
            yield os.path.join(root, "blobs", f"sha256-{match[1]}")


def _ollama_model(path: str, examine: bool) -> Iterator[DiscoveredModel]:
    if found := _stat(path):
        yield from gguf_model([(path, found)], "ollama", "", examine)
        return
    part = _stat(f"{path}-partial")
    size, modified = (part.st_size, part.st_mtime) if part else (0, 0.0)
    problem = INCOMPLETE if part else "its file is missing"
    yield DiscoveredModel(
        *(path, "", 0, 0, 0, "gguf", size, "ollama"), modified=modified, problem=problem
    )


def _files_below(directory: str, depth: int) -> Iterator[str]:
    for name in _names(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            if depth > 1:
                yield from _files_below(path, depth - 1)
        else:
            yield path


# --------------------------------------------------------------------------- llama.cpp


def _llama_cpp_root() -> str:
    if os.environ.get("LLAMA_CACHE"):
        return _expand(os.environ["LLAMA_CACHE"])
    if sys.platform == "darwin":
        return _expand("~/Library/Caches/llama.cpp")
    if sys.platform == "win32":
        return os.path.join(os.environ.get("LOCALAPPDATA", _expand("~")), "llama.cpp")
    return os.path.join(_cache_home(), "llama.cpp")


# --------------------------------------------------------------------------- paths


def _cache_home() -> str:
    return _expand(os.environ.get("XDG_CACHE_HOME") or "~/.cache")


def _expand(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []


def _stat(path: str) -> os.stat_result | None:
    """What is known of a regular file or a directory; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found if stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) else None
