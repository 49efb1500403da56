"""Which model it is, in a few digits that cost nothing, for what belongs to one model alone.

A calibration or a head is worth something with the model that it was fitted on, wherever that
model's files lie. So neither place nor age counts: a copy, a download and a link of the same files
are the same model, and the same weights in another format or quantisation are another.

What is read of each file: its size; the whole of up to a megabyte; of a larger one, its beginning,
its end, and 256 samples in even distances, so that gigabytes take milliseconds and a model that
was trained on has another fingerprint. A change between the samples alone is not seen.
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
    """The fingerprint of a model's files, with those of its adapter. Raises `ModelError`.

    Of a directory, weights, tokeniser and configuration count, with their names, and every file of
    one without safetensors or GGUF files; a file's own name does not, and the other parts of a
    GGUF file belong to it.
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
        digest.update(b"/")  # one model's files behind another's are not those of one
    return digest.hexdigest()


def remember(
    model: TextModel, path: str | os.PathLike[str], adapter_path: str | os.PathLike[str] | None
) -> None:
    """Note where a loaded model comes from, for `fingerprint_of`."""
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
    """Note that ``model`` has the weights of ``base``, and this adapter (`core.Adapting`)."""
    place = _PLACES.get(base)
    if place is not None:
        remember(model, place[0], adapter_path)


def known_as(model: TextModel, found: str) -> None:
    """Note a fingerprint that no files tell: a server's, or one made for a model that changed."""
    _FOUND[model] = found


def fingerprint_of(model: TextModel) -> str:
    """The fingerprint of a loaded model; found once. Raises `ModelError` where its files are gone.

    Of a model that `core.load_model` did not load, and a fake, it is made of ``model.info``: then
    two models of one architecture and size are alike.
    """
    try:
        found = _FOUND.get(model)
        if found is None:
            place = _PLACES.get(model)
            found = _FOUND[model] = _of_info(model) if place is None else fingerprint(*place)
    except TypeError:
        return _of_info(model)
    return found


def _of_info(model: TextModel) -> str:
    return blake2b(repr((model.model_type, model.info)).encode(), digest_size=16).hexdigest()


def _of_address(model: TextModel, address: str) -> str:
    """Of a model whose files are a server's: by where it is, and what the server calls it."""
    return blake2b(repr((model.model_type, address)).encode(), digest_size=16).hexdigest()


def _files(location: str, whole: bool) -> Iterator[tuple[str, str]]:
    """Yield what a model's answers depend on: the names that count, and where the files are.

    A directory counts ``whole`` as an adapter's; as a model's, without what it is not read from.
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
    """Return the files beside a model's weights that it is not computed from."""
    try:
        chosen = weight_files(directory, names)
    except ModelError:
        return set()
    return {*chosen.others, "adapter_config.json"} if chosen.own else set()


def _parts(directory: str, own: str) -> list[str]:
    """A GGUF file's name, with those of its other parts."""
    shard = SHARD.match(own)
    if shard is None:
        return [own]
    named = ((name, SHARD.match(name)) for name in os.listdir(directory))
    same = ("stem", "count")
    return sorted(
        name for name, found in named if found and found.group(*same) == shard.group(*same)
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
