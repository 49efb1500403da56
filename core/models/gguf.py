"""The header of a GGUF file: metadata and tensor infos, no weights. Standard library only.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3,
little-endian). Claims of the file are limited by the file's own size, so an invalid
header costs neither memory nor time.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Collection
from dataclasses import dataclass
from typing import BinaryIO, NoReturn, TypeAlias

from core.errors import InvalidModelError
from core.models.files import open_model_file, resolve_path, typed_errors

SHARD = re.compile(r"(?P<stem>.*)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf$", re.IGNORECASE)
"""The name of a shard of a model."""
NO_LANGUAGE_MODEL = ("adapter", "mmproj", "imatrix")
"""Values of ``general.type``."""
BIG_ARRAY = 1024
"""Arrays with more elements are skipped unless they are requested."""
MAX_HEADER_BYTES = 128 * 2**20
"""Ten times the size of the header of a model with 262,144 tokens."""
MAX_ELEMENTS = 4 * 2**20
"""Limit for the loops: array elements of one file, all arrays together."""
_MAX_NESTING = 4
_MAX_DIMENSIONS = 4
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}
_U64 = struct.Struct("<Q")
TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""The name of each ggml type, its weights per block, and its bytes per block."""


@dataclass(frozen=True, slots=True)
class SkippedArray:
    """Placeholder for an array that was not read; ``len()`` is its length."""

    length: int

    def __len__(self) -> int:
        return self.length


GgufValue: TypeAlias = "bool | int | float | str | list[GgufValue] | SkippedArray"


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Position, shape and type of one tensor in the file.

    ``shape`` is in the file's order, the fastest-varying dimension first (numpy's reversed);
    ``ggml_type`` is ggml's type number; ``offset`` is in bytes, from ``data_offset``.
    """

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """Header; ``tensors`` and ``data_offset`` (bytes from the file's start) are set on request."""

    version: int
    metadata: dict[str, GgufValue]
    tensors: tuple[GgufTensor, ...] = ()
    data_offset: int = 0


def read_gguf(
    path: str | os.PathLike[str],
    *,
    arrays: bool = False,
    tensors: bool = False,
    only: Collection[str] = (),
    text_errors: str = "strict",
    cut_off: bool = False,
) -> GgufHeader:
    """Read a GGUF file's header.

    Without ``arrays``, a large array becomes a `SkippedArray`. With ``only``, reading stops as
    soon as all of these keys are known, and ``tensors`` is ignored. ``text_errors`` is the
    ``errors`` of `bytes.decode` for texts in arrays. With ``cut_off`` the file may end before its
    tensors do. Raises `InvalidModelError`, `ModelNotFoundError`, `ModelAccessError`.
    """
    location = resolve_path(path)
    with typed_errors(location), open_model_file(location) as file:
        reader = _Reader(file, location, arrays, text_errors, cut_off)
        try:
            return reader.header(tensors and not only, frozenset(only))
        except (struct.error, UnicodeDecodeError) as error:
            reader.fail(str(error), error)


class _Reader:
    """A forward-only reader; ``left`` is the number of bytes that may still follow."""

    def __init__(
        self, file: BinaryIO, path: str, arrays: bool, text_errors: str, cut_off: bool
    ) -> None:
        self.file, self.path, self.arrays, self.text_errors = file, path, arrays, text_errors
        self.cut_off = cut_off
        self.size = os.fstat(file.fileno()).st_size
        self.left = min(self.size, MAX_HEADER_BYTES)
        self.elements = 0

    def fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        raise InvalidModelError(
            f"The GGUF file {self.path!r} is broken: {reason}. Download or convert it again."
        ) from cause

    def header(self, tensors: bool, only: frozenset[str]) -> GgufHeader:
        version = self.version()
        tensor_count, pair_count = self.u64(), self.u64()
        metadata = self.metadata(pair_count, only)
        if not tensors:
            return GgufHeader(version, metadata)
        infos = self.tensors(tensor_count)
        return GgufHeader(version, metadata, infos, self.data_offset(metadata, infos))

    def version(self) -> int:
        if self.take(4) != b"GGUF":
            self.fail("it does not start with 'GGUF'")
        version = self.u32()
        if version and version % 2**24 == 0:  # a small number, its bytes the other way round
            self.fail("it is big-endian; only little-endian files are supported")
        if version not in (2, 3):
            self.fail(f"its version is {version}; only versions 2 and 3 are supported")
        return version

    def metadata(self, count: int, only: frozenset[str]) -> dict[str, GgufValue]:
        self.expect(count, 13, "metadata entries")  # empty key, type, one byte
        metadata: dict[str, GgufValue] = {}
        for _ in range(count):
            key = self.string()
            if key in metadata:
                self.fail(f"it has the key {key[:80]!r} twice")
            metadata[key] = self.value(self.u32())
            if only and only <= metadata.keys():
                break
        return metadata

    def value(self, kind: int, nesting: int = 0) -> GgufValue:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(nesting + 1)
        return self.scalars(kind, 1)[0]

    def array(self, nesting: int) -> GgufValue:
        kind, count = self.u32(), self.u64()
        if nesting > _MAX_NESTING:
            self.fail(f"its arrays are nested more than {_MAX_NESTING} deep")
        self.elements += count
        if self.elements > MAX_ELEMENTS:
            self.fail(f"its arrays have more than {MAX_ELEMENTS} elements")

        keep = self.arrays or count <= BIG_ARRAY
        if kind == _STRING:
            values: list[GgufValue] = self.strings(count, keep)
        elif kind == _ARRAY:
            self.expect(count, 12, "arrays")
            values = [self.array(nesting + 1) for _ in range(count)]
        else:
            values = self.scalars(kind, count)
        return values if keep else SkippedArray(count)

    def scalars(self, kind: int, count: int) -> list[GgufValue]:
        code = _SCALARS.get(kind)
        if code is None:
            self.fail(f"it has a value of the unknown type {kind}")
        layout = f"<{count}{code}"
        values = struct.unpack(layout, self.take(struct.calcsize(layout)))
        return [value != 0 for value in values] if kind == _BOOL else list(values)

    def strings(self, count: int, keep: bool) -> list[GgufValue]:
        # This loop runs 250,000 times for one vocabulary: only locals, and no call but read.
        self.expect(count, 8, "strings")
        read, unpack, left = self.file.read, _U64.unpack, self.left
        errors = self.text_errors
        values: list[GgufValue] = []

        for _ in range(count):
            (length,) = unpack(read(8))
            left -= 8 + length
            if left < 0:
                self.fail(f"a string of {length} bytes does not fit in it")
            data = read(length)
            if keep:
                values.append(data.decode(errors=errors))

        self.left = left
        return values

    def tensors(self, count: int) -> tuple[GgufTensor, ...]:
        self.expect(count, 24, "tensors")  # empty name, no dimensions, type, offset
        return tuple(self.tensor() for _ in range(count))

    def tensor(self) -> GgufTensor:
        name, dimensions = self.string(), self.u32()
        if dimensions > _MAX_DIMENSIONS:
            self.fail(f"tensor {name[:80]!r} has {dimensions} dimensions")
        shape = struct.unpack(f"<{dimensions}Q", self.take(8 * dimensions))
        return GgufTensor(name, shape, self.u32(), self.u64())

    def data_offset(self, metadata: dict[str, GgufValue], infos: tuple[GgufTensor, ...]) -> int:
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20:
            self.fail(f"its general.alignment is {str(alignment)[:80]}")
        start = -(-self.file.tell() // alignment) * alignment
        for info in infos:
            if start + info.offset > self.size and not self.cut_off:
                self.fail(f"tensor {info.name[:80]!r} starts after the end of the file")
        return start

    def string(self) -> str:
        return self.take(self.u64()).decode()

    def u32(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def u64(self) -> int:
        return int.from_bytes(self.take(8), "little")

    def take(self, count: int) -> bytes:
        self.expect(count, 1, "bytes")
        self.left -= count
        data = self.file.read(count)
        if len(data) != count:
            self.fail("it ends too early")
        return data

    def expect(self, count: int, size: int, what: str) -> None:
        if count * size > self.left:
            self.fail(f"it claims {count} {what}, more than fit in it")
