"""Ollama's store: a name refers to a manifest, a list of layers, one of which is the model.

Layout: ``manifests/HOST/SPACE/NAME/TAG`` is JSON; a layer's data are the file
``blobs/sha256-DIGEST``. Media types: https://github.com/ollama/ollama/blob/main/server/images.go.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from core.errors import CoreError
from core.models.described import gguf_model
from core.models.discovery import discover
from core.models.files import expanded, files_below, names_in, read_json_object, stat_of
from core.models.gguf import read_gguf
from core.models.weight_files import INCOMPLETE, finished_name
from core.system.limited_files import Refused, open_regular
from core.types import DiscoveredModel

ADAPTER, TENSOR = "adapter", "tensor"
LAYERS: Mapping[str, str] = {
    ADAPTER: "loaded with the model",
    "system": "not applied: pass it as a system message (`ollama show --system NAME` prints it)",
    "messages": "not applied: pass them before your own (`ollama show --modelfile NAME`)",
    "template": "not applied: the chat template in the GGUF file is used",
    "params": "not applied: pass them as options (`ollama show --parameters NAME`)",
    "projector": "not used: images are not supported",
    "draft": "not used: it makes Ollama faster and does not change outputs",
    TENSOR: "not read: each is one tensor of a model that is not in GGUF",
}
"""The kinds of layers besides the model's that `DiscoveredModel.parts` names, and their use."""
_NO_TEMPLATE = (
    "not applied, and the GGUF file has none: chat uses the model family's format, or fails"
)
UNKNOWN_LAYER = "not applied: this kind of layer is not known"

_PREFIX = "application/vnd.ollama.image."
_MODEL = "model"
_SILENT = (_MODEL, TENSOR, "license", "json", "embed")  # on which no output of a model depends
_ALIASES = {"prompt": "template"}
_CHANGE_OUTPUT = (ADAPTER, "system", "messages")
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")
_SYSTEMD = "/etc/systemd/system"
_SETTING = re.compile(r"""^[^#\n]*?(?:"OLLAMA_MODELS=([^"\n]+)"|\bOLLAMA_MODELS=(\S+))""", re.M)


@dataclass(frozen=True, slots=True)
class _Manifest:
    """The blobs that a name refers to, by kinds of layers."""

    model: str
    adapters: tuple[str, ...]
    others: tuple[tuple[str, str], ...]  # kind and blob, sorted: what tells two names apart

    @property
    def parts(self) -> tuple[str, ...]:
        """The kinds of layers besides the model's, the adapter first."""
        kinds = dict.fromkeys(kind for kind, _ in self.others)
        return (*(ADAPTER for _ in self.adapters[:1]), *kinds)


def ollama_roots() -> list[str]:
    """Return the stores: ``OLLAMA_MODELS``, or else the user's and the service's."""
    if os.environ.get("OLLAMA_MODELS"):
        return [expanded(os.environ["OLLAMA_MODELS"])]
    # The second is the home of the service that its installer sets up on Linux.
    return [expanded("~/.ollama/models"), "/usr/share/ollama/.ollama/models", *_of_the_service()]


def ollama_models(root: str, examine: bool = True) -> Iterator[DiscoveredModel]:
    """Yield the models of a store, one for all names with the same layers, then partial pulls."""
    manifests = os.path.join(root, "manifests")
    names: dict[_Manifest, list[str]] = {}
    for path in files_below(manifests, 4):  # host/space/name/tag
        called = list(_names(os.path.relpath(path, manifests)))
        if manifest := _manifest(root, path):
            names.setdefault(manifest, []).extend(called)
        elif TENSOR in _layers(path):
            yield _of_tensors(path, called)

    described: dict[str, list[DiscoveredModel]] = {}  # of blobs, which names may share
    for manifest in sorted(names, key=lambda item: (item.model, item.adapters, item.others)):
        if manifest.model not in described:
            described[manifest.model] = list(_model(manifest.model, examine))
        for model in described[manifest.model]:
            yield _completed(replace(model, names=tuple(names[manifest])), manifest)
    yield from _pulls(os.path.join(root, "blobs"), described.keys())


def unapplied(model: DiscoveredModel) -> Iterator[tuple[str, str, bool]]:
    """Yield each layer that a load omits: its kind, its use, whether the output depends on it.

    The output depends on a template if the GGUF file has none; options are the caller's.
    """
    for kind in model.parts:
        if kind != ADAPTER:
            use = LAYERS.get(kind, UNKNOWN_LAYER).replace("NAME", model.name)
            changes = kind in _CHANGE_OUTPUT or kind not in LAYERS
            if kind == "template" and not _has_template(model.path):
                use, changes = _NO_TEMPLATE, True
            yield kind, use, changes


def _has_template(path: str) -> bool:
    key = "tokenizer.chat_template"
    try:
        metadata = read_gguf(path, only=(key,)).metadata
    except CoreError:  # its load reports the error
        return True
    return any(name.startswith(key) for name in metadata)


def _of_the_service() -> Iterator[str]:
    """Yield the ``OLLAMA_MODELS`` of the systemd service, which the user's environment lacks."""
    folder = os.path.join(_SYSTEMD, "ollama.service.d")
    units = [os.path.join(folder, name) for name in names_in(folder) if name.endswith(".conf")]
    for unit in (os.path.join(_SYSTEMD, "ollama.service"), *units):
        try:
            with open_regular(unit) as file:
                text = file.read(2**16).decode(errors="replace")
        except (OSError, Refused):
            continue
        yield from (expanded(quoted or plain) for quoted, plain in _SETTING.findall(text))


def _names(manifest: str) -> Iterator[str]:
    """Yield a manifest's names in Ollama's form, ``name:tag``; the tag ``latest`` is optional."""
    if os.sep not in manifest:  # a file of something else
        return
    *space, name, tag = manifest.split(os.sep)
    if space[:1] == ["registry.ollama.ai"]:  # Ollama's default registry
        space = [part for part in space[1:] if part != "library"]
    called = "/".join([*space, name])
    yield f"{called}:{tag}"
    if tag == "latest":
        yield called


def _layers(path: str) -> dict[str, list[str]]:
    """Return the digests in a manifest, as names of blobs, by kinds of layers."""
    try:
        layers = read_json_object(path).get("layers")
    except CoreError:
        return {}
    kinds: dict[str, list[str]] = {}
    for layer in layers if isinstance(layers, list) else []:
        # Only a digest makes a file name: a manifest cannot point elsewhere.
        if isinstance(layer, dict) and (match := _DIGEST.fullmatch(str(layer.get("digest")))):
            kind = str(layer.get("mediaType")).removeprefix(_PREFIX)
            kinds.setdefault(_ALIASES.get(kind, kind), []).append(f"sha256-{match[1]}")
    return kinds


def _manifest(root: str, path: str) -> _Manifest | None:
    """Return the contents of a manifest; None for one without a model in GGUF."""
    blobs = {
        kind: [os.path.join(root, "blobs", name) for name in names]
        for kind, names in _layers(path).items()
    }
    if _MODEL not in blobs:
        return None
    adapters = tuple(blobs.pop(ADAPTER, ()))
    others = [(kind, blob) for kind in blobs if kind not in _SILENT for blob in blobs[kind]]
    return _Manifest(blobs[_MODEL][0], adapters, tuple(sorted(others)))


def _completed(model: DiscoveredModel, manifest: _Manifest) -> DiscoveredModel:
    missing = [path for path in manifest.adapters if stat_of(path) is None]
    problem = model.problem
    if missing:
        problem = problem or "its adapter's file is missing"
    elif len(manifest.adapters) > 1:
        problem = problem or f"it has {len(manifest.adapters)} adapters; only one can be loaded"
    return replace(model, parts=manifest.parts, adapters=manifest.adapters, problem=problem)


def _model(path: str, examine: bool) -> Iterator[DiscoveredModel]:
    if facts := stat_of(path):
        yield from gguf_model([(path, facts)], "ollama", "", examine)
        return
    part = stat_of(f"{path}-partial")
    size, modified = (part.st_size, part.st_mtime) if part else (0, 0.0)
    problem = INCOMPLETE if part else "its file is missing"
    yield DiscoveredModel(
        *(path, "", 0, 0, 0, "gguf", size, "ollama"), modified=modified, problem=problem
    )


def _of_tensors(manifest: str, names: Collection[str]) -> DiscoveredModel:
    """Return a model that has one blob per tensor; its path is the manifest's."""
    facts = stat_of(manifest)
    return DiscoveredModel(
        *(manifest, "", 0, 0, 0, "safetensors", 0, "ollama"),
        names=tuple(names),
        modified=facts.st_mtime if facts else 0.0,
        problem="no safetensors file, only Ollama's blobs of single tensors",
        parts=(TENSOR,),
    )


def _pulls(blobs: str, named: Collection[str]) -> Iterator[DiscoveredModel]:
    """Yield models of running or interrupted pulls, which have no name yet."""
    for name in names_in(blobs):
        path = os.path.join(blobs, name)
        if _DIGEST.fullmatch(finished_name(name)) and path.removesuffix("-partial") not in named:
            yield from discover(path, 0, "ollama", examine=False)
