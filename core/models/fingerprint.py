"""Fingerprint of a model: a cheap identifier for data that belongs to one model.

A calibration or a classifier head is only valid for the model that it was fitted on, wherever that
model's files are. So neither path nor age matters: a copy, a download and a link of the same files
are the same model; the same weights in another format or quantisation are a different one.

Of each file the size is read, and the contents up to a megabyte; of a larger one, its start, its
end, and 256 evenly spaced samples, so that gigabytes take milliseconds and further training changes
the fingerprint. A change only between the samples is not detected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, BinaryIO
from weakref import WeakKeyDictionary

from core.errors import ModelError
from core.models.files import (
    is_address,
    is_gguf_name,
    open_model_file,
    resolve_path,
    typed_errors,
)
from core.models.gguf import SHARD
from core.models.weight_files import weight_files

if TYPE_CHECKING:
    from core.protocols import TextModel

_WHOLE, _ENDS, _SAMPLE, _SAMPLES = 2**20, 2**14, 2**12, 256
_WEIGHTS = (".safetensors", ".model")
_TEXT = ("config.json", "adapter_config.json", "tokenizer", "vocab", "merges", "added_tokens")

_PLACES: WeakKeyDictionary[object, tuple[str, str | None]] = WeakKeyDictionary()
_FOUND: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def fingerprint(
    path: str | os.PathLike[str], adapter_path: str | os.PathLike[str] | None = None
) -> str:
    """Return the fingerprint of a model's files and of its adapter's. Raises `ModelError`.

    For a directory it covers weights, tokeniser and configuration, with their names, or every file
    if none is a safetensors or GGUF file; for a file, all its shards but not its name.
    """
    digest = blake2b(digest_size=16)
    for place, whole in ((path, False), (adapter_path, True)):
        if place is None:
            continue
        location = resolve_path(place)
        with typed_errors(location):
            for name, file in _files(location, whole):
                with open_model_file(file) as stream:
                    size = os.fstat(stream.fileno()).st_size
                    digest.update(repr((name, size)).encode())
                    for part in _samples(stream, size):
                        digest.update(part)
        digest.update(b"/")  # separates the model's files from the adapter's
    return digest.hexdigest()


def remember(
    model: TextModel, path: str | os.PathLike[str], adapter_path: str | os.PathLike[str] | None
) -> None:
    """Record where a loaded model comes from, for `fingerprint_of`."""
    try:
        if is_address(path):
            if model not in _FOUND:
                _FOUND[model] = _of_address(model, resolve_path(path))
            return
        adapter = None if adapter_path is None else resolve_path(adapter_path)
        _PLACES[model] = resolve_path(path), adapter
        _FOUND.pop(model, None)
    except TypeError:  # a backend's own class may allow no weak references
        return


def remember_adapter(
    model: TextModel, base: TextModel, adapter_path: str | os.PathLike[str] | None
) -> None:
    """Record that ``model`` has the weights of ``base``, and this adapter (`core.Adapting`)."""
    place = _PLACES.get(base)
    if place is not None:
        remember(model, place[0], adapter_path)


def known_as(model: TextModel, mark: str) -> None:
    """Record a fingerprint without files: a server's, or one of a model that changed."""
    _FOUND[model] = mark


def fingerprint_of(model: TextModel) -> str:
    """Return the fingerprint of a loaded model; computed once.

    Raises `ModelError` if its files no longer exist. For a model that `core.load_model` did not
    load, and for a fake, it is computed from ``model.info``: then two models of one architecture
    and size have the same fingerprint.
    """
    try:
        known = _FOUND.get(model)
        if known is None:
            place = _PLACES.get(model)
            known = _FOUND[model] = _of_info(model) if place is None else fingerprint(*place)
    except TypeError:
        return _of_info(model)
    return known


def _of_info(model: TextModel) -> str:
    return blake2b(repr((model.model_type, model.info)).encode(), digest_size=16).hexdigest()


def _of_address(model: TextModel, address: str) -> str:
    """Return the fingerprint of a server's model, from its address and its ``model_type``."""
    return blake2b(repr((model.model_type, address)).encode(), digest_size=16).hexdigest()


def _files(location: str, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield the files that a model's answers depend on: their names, and their paths.

    ``whole`` includes all files of a directory, as for an adapter; else unrelated ones are omitted.
    """
    if not os.path.isdir(location):
        directory, own = os.path.split(location)
        for place, name in enumerate(_parts(directory, own)):
            yield str(place), os.path.join(directory, name)
        return
    names = {name for name in os.listdir(location) if not name.startswith(".")}
    known = any(name.endswith(".safetensors") or is_gguf_name(name) for name in names)
    for name in sorted(names if whole else names - _strangers(location, names)):
        if not known or name.endswith(_WEIGHTS) or name.startswith(_TEXT) or is_gguf_name(name):
            file = os.path.join(location, name)
            if os.path.isfile(file):
                yield name, file


def _strangers(directory: str, names: set[str]) -> set[str]:
    """Return the files next to a model's weights that the model does not read."""
    try:
        chosen = weight_files(directory, names)
    except ModelError:
        return set()
    return {*chosen.others, "adapter_config.json"} if chosen.own else set()


def _parts(directory: str, own: str) -> list[str]:
    """Return a GGUF file's name, with the names of its other shards."""
    shard = SHARD.match(own)
    if shard is None:
        return [own]
    named = ((name, SHARD.match(name)) for name in os.listdir(directory))
    same = ("stem", "count")
    return sorted(
        name for name, match in named if match and match.group(*same) == shard.group(*same)
    )


def _samples(file: BinaryIO, size: int) -> Iterator[bytes]:
    if size <= _WHOLE:
        yield file.read(size)
        return
    yield file.read(_ENDS)
    step = (size - _ENDS - _SAMPLE) // (_SAMPLES - 1)
    for number in range(_SAMPLES):
        file.seek(_ENDS + number * step)
        yield file.read(_SAMPLE)
    file.seek(size - _ENDS)
    yield file.read(_ENDS)
