"""The converted matrices of a model in a file of the user's cache, which is mapped.

OpenVINO keeps the constants of a graph beside the matrices that it packs for its products. Read
from a mapped file, the constants take no memory that the system could not take back, and the next
load converts nothing. A compiled graph cannot be kept instead: OpenVINO 2026.4 exports it with
these constants, not the packed matrices, and refuses to import it ("k_head_size and num_k_heads are
required"), since the file lacks what the graph says about its paged attention.

A file has a first line, the parts of all matrices, and a digest of samples of both. It is written
beside its place and moved there, so that a reader never sees a part of it.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import openvino as ov

from core import __version__
from core.errors import OutputError
from core.kit.support import Chosen, asked_integer
from core.models.fingerprint import fingerprint
from core.options import LoadConfig
from core.system.outputs import Kind, cache_root, draft, private_folder
from core_openvino.checkpoint import Checkpoint, Times, times_of
from core_openvino.weights import Part, converted, parts_of, taken
from core_runtime.checkpoint.arrays import TensorArrays

_FIRST_LINE = b"matrices of core_openvino, form 1\n"  # another form of matrices has another number
_KIND = Kind("a file of matrices", re.compile(re.escape(_FIRST_LINE)))
_SUFFIX = ".matrices"
_ALIGNED = 64  # bytes; OpenVINO copies a constant whose address is no multiple of 16
_SAMPLE, _SAMPLES, _DIGEST = 4096, 256, 16
_NUMPY = {ov.Type.f32: np.float32, ov.Type.bf16: np.uint16, ov.Type.i8: np.int8}

_LEAST = 32 << 20  # bytes of matrices that are worth a file: fewer are converted in 0.1 s
_MOST, _SHARE = 16 << 30, 4  # the files take at most a quarter of what is free


class _Place(NamedTuple):
    """Where a part of a matrix is in a file."""

    part: Part
    start: int


Layout = Mapping[str, Sequence[_Place]]


def layout(tensors: TensorArrays, dtype: str) -> tuple[Layout, int]:
    """Return where a file has the parts of each matrix, and the size of the file."""
    places: dict[str, list[_Place]] = {}
    end = _ALIGNED
    for name, shape in tensors.shapes.items():
        if len(shape) == 2:
            places[name] = []
            for part in parts_of(shape, dtype):
                places[name].append(_Place(part, end))
                end += -(-part.size // _ALIGNED) * _ALIGNED
    return places, end + _DIGEST


class StoredMatrices:
    """The matrices of one model, mapped. Tensors of `parts` are valid while this object lives.

    Raises ValueError if the file is broken, OSError if it cannot be opened.
    """

    def __init__(self, file: Path, places: Layout, size: int) -> None:
        with file.open("rb") as stream:
            self._mapping = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(self._mapping, np.uint8)
        self._places = places
        data, digest = self._bytes[:-_DIGEST], self._bytes[-_DIGEST:].tobytes()
        start = self._bytes[: len(_FIRST_LINE)].tobytes()
        if len(self._bytes) != size or start != _FIRST_LINE or digest != _digest(data):
            raise ValueError(f"{file} is broken")

    def parts(self, name: str) -> list[ov.Tensor]:
        """Return the parts of a matrix, which share the memory of the mapping."""
        return [self._tensor(*place) for place in self._places[name]]

    def _tensor(self, part: Part, start: int) -> ov.Tensor:
        array = self._bytes[start : start + part.size].view(_NUMPY[part.kind])
        return ov.Tensor(array.reshape(part.shape), list(part.shape), part.kind)

    def forget_pages(self) -> None:
        """Take the file's pages out of this process; they are read again when they are needed."""
        if hasattr(mmap, "MADV_DONTNEED"):  # Windows has none
            self._mapping.madvise(mmap.MADV_DONTNEED)


def stored_matrices(checkpoint: Checkpoint, dtype: str, limit: int) -> StoredMatrices | None:
    """Return the mapped matrices of a model; a missing file is written.

    ``limit``: bytes of all files together. None if this one does not fit or cannot be written, or
    if the model's files were changed since they were first read.
    Raises `core.ModelError` for the model's files.
    """
    tensors = checkpoint.tensors
    places, size = layout(tensors, dtype)
    if size > limit:
        return None
    try:
        folder = private_folder(_folder())
        mark = _mark(checkpoint.path, checkpoint.times, dtype)
        file = folder / f"{mark}{_SUFFIX}"
        with suppress(OSError, ValueError):
            matrices = StoredMatrices(file, places, size)
            os.utime(file)
            return matrices
        file.unlink(missing_ok=True)
        _make_room(folder, limit - size)
        with draft(file, _KIND) as partial:
            _write(partial, places, size, tensors, dtype)
            if _mark(checkpoint.path, times_of(checkpoint.path), dtype) != mark:
                raise ValueError("the model's files were changed")
        return StoredMatrices(file, places, size)
    except (OSError, OutputError, ValueError):
        return None


def weight_cache(config: LoadConfig, tensors: TensorArrays, dtype: str) -> Chosen[int]:
    """Return the bytes of files that may be kept; 0 for none, also if this model's cannot be.

    Raises `core.InvalidOptionError` for an invalid option value.
    """
    name, size = "weight_cache", layout(tensors, dtype)[1]
    requested = asked_integer(config, name, 0)
    if requested is not None and requested.value < size:
        return requested
    if requested is None and size < _LEAST:
        return Chosen(name, 0, "these weights are converted in a moment")
    try:
        folder = private_folder(_folder())
        free = shutil.disk_usage(folder).free + _used(folder)
    except OSError as error:
        return Chosen(name, 0, f"the folder for converted weights cannot be used: {error}")
    needed = f"their {size / 1e9:.1f} GB"
    if requested is not None:
        less = Chosen(name, 0, f"the free disk is less than {needed}")
        return requested if size <= free else less
    share = free // _SHARE
    if share < size:
        return Chosen(name, 0, f"a quarter of the free disk is less than {needed}")
    purpose = "bytes of converted weights kept on disk, which later loads map"
    return Chosen(name, min(share, _MOST), purpose)


def _folder() -> Path:
    return cache_root() / "openvino"


def _mark(path: Path, times: Times, dtype: str) -> str:
    """Return a name for the matrices of these files.

    A fingerprint samples them: a change between the samples shows in the time of the change.
    Another version may convert otherwise.
    """
    facts = (fingerprint(path), times, dtype, _FIRST_LINE, __version__)
    return blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _write(file: Path, places: Layout, size: int, tensors: TensorArrays, dtype: str) -> None:
    with file.open("wb") as stream:
        stream.write(_FIRST_LINE)
        for name, own in places.items():
            parts = converted(taken(tensors, name, dtype), dtype)
            for place, tensor in zip(own, parts, strict=True):
                stream.write(b"\0" * (place.start - stream.tell()))
                stream.write(tensor.data.reshape(-1).view(np.uint8))
        stream.write(b"\0" * (size - _DIGEST - stream.tell()))
        stream.flush()
        stream.write(_digest(np.memmap(file, np.uint8, "r")))


def _digest(data: npt.NDArray[np.uint8]) -> bytes:
    """Return a digest of samples: the whole would take as long to read as the matrices."""
    starts = np.linspace(0, max(0, len(data) - _SAMPLE), _SAMPLES).astype(np.int64)
    digest = blake2b(digest_size=_DIGEST)
    for start in starts.tolist():
        digest.update(data[start : start + _SAMPLE].tobytes())
    return digest.digest()


def _make_room(folder: Path, room: int) -> None:
    """Remove the files that were not used for the longest time, also drafts that were left."""
    for status, file in sorted(_files(folder), key=lambda item: -item[0].st_mtime):
        room -= status.st_size
        if room < 0:
            with suppress(OSError):  # on Windows a file stays while it is mapped
                file.unlink()


def _used(folder: Path) -> int:
    return sum(status.st_size for status, _ in _files(folder))


def _files(folder: Path) -> Iterator[tuple[os.stat_result, Path]]:
    for file in folder.glob(f"*{_SUFFIX}"):
        with suppress(FileNotFoundError):  # another process removed it
            yield file.lstat(), file
