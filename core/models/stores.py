"""The places where people keep models, and how each one lays them out.

Nothing is downloaded, copied or written. Layouts: huggingface_hub's cache, LM Studio, Ollama,
llama.cpp's cache, and this project's own.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import replace

from core.errors import CoreError
from core.models.discovery import discover, gguf_model
from core.models.files import open_model_file, read_json_object
from core.types import DiscoveredModel

_OLLAMA_MODEL = "application/vnd.ollama.image.model"
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_SHARD = re.compile(r"(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})\.safetensors$")


def core_models_dir() -> str:
    """Where this project keeps the models that it makes: ``$XDG_CACHE_HOME/core/models``."""
    return os.path.join(_cache_home(), "core", "models")


def discover_stores() -> list[DiscoveredModel]:
    """The models of all stores, store by store, each sorted by path; no file twice.

    One that is found in several stores has the names of all of them.

    Never raises for what it meets: a store that is missing or unreadable has no models.
    """
    found: dict[str, DiscoveredModel] = {}
    for model in _all_stores():
        first = found.setdefault(os.path.realpath(model.path), model)
        names = dict.fromkeys((*first.names, *model.names))
        found[os.path.realpath(model.path)] = replace(first, names=tuple(names))
    return list(found.values())


def _all_stores() -> Iterator[DiscoveredModel]:
    yield from _below(core_models_dir(), 1, "core")
    yield from _hugging_face(_hugging_face_root())
    for root in (("~", ".lmstudio", "models"), ("~", ".cache", "lm-studio", "models")):
        yield from _below(_expand(os.path.join(*root)), 2, "lm-studio")
    for root_dir in _ollama_roots():
        yield from _ollama(root_dir)
    yield from _below(_llama_cpp_root(), 1, "llama.cpp")


def _below(root: str, depth: int, source: str, prefix: str = "") -> list[DiscoveredModel]:
    """The models of a store, called by their paths below its ``root``, behind ``prefix``."""
    try:
        found = discover(root, depth, source)
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


def _hugging_face(root: str) -> Iterator[DiscoveredModel]:
    for name in _names(root):
        if not name.startswith("models--"):
            continue
        repository = os.path.join(root, name)
        if any(blob.endswith(".incomplete") for blob in _names(os.path.join(repository, "blobs"))):
            continue  # a download is running, or was interrupted
        for snapshot in snapshots_of(repository):
            if _is_complete(snapshot):
                published = name.removeprefix("models--").replace("--", "/")
                yield from _below(snapshot, 1, "huggingface", published)


def snapshots_of(repository: str) -> list[str]:
    """The snapshot that ``refs/main`` names; all of them when there is no such ref."""
    snapshots = os.path.join(repository, "snapshots")
    try:
        with open_model_file(os.path.join(repository, "refs", "main")) as file:
            commit = file.read(256).decode("ascii").strip()
    except (CoreError, OSError, ValueError):
        return [os.path.join(snapshots, name) for name in _names(snapshots)]
    return [os.path.join(snapshots, name) for name in _names(snapshots) if name == commit]


def _is_complete(snapshot: str) -> bool:
    """Whether every link has its file, and every numbered shard is there."""
    names = _names(snapshot)
    if not all(os.path.exists(os.path.join(snapshot, name)) for name in names):
        return False
    shards = [match for name in names if (match := _SHARD.match(name))]
    sets = {(match["stem"], int(match["count"])) for match in shards}
    return all(sum(m["stem"] == stem for m in shards) == count for stem, count in sets)


# --------------------------------------------------------------------------- Ollama


def _ollama_roots() -> list[str]:
    if os.environ.get("OLLAMA_MODELS"):
        return [_expand(os.environ["OLLAMA_MODELS"])]
    # The second is the home of the service that its installer sets up on Linux.
    return [_expand("~/.ollama/models"), "/usr/share/ollama/.ollama/models"]


def _ollama(root: str) -> list[DiscoveredModel]:
    manifests = os.path.join(root, "manifests")
    names: dict[str, list[str]] = {}  # of each blob: tags may share one
    for manifest in _files_below(manifests, 4):  # host/space/name/tag
        for blob in _ollama_blobs(root, manifest):
            names.setdefault(blob, []).extend(_ollama_names(os.path.relpath(manifest, manifests)))
    return [
        replace(model, names=tuple(names[path]))
        for path in sorted(names)
        for model in _ollama_model(path)
    ]


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


def _ollama_model(path: str) -> Iterator[DiscoveredModel]:
    if os.path.isfile(path):
        yield from gguf_model(path, "ollama", 1, os.path.getsize(path))


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
