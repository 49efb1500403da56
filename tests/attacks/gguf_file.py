"""A GGUF file taken apart and put together again, whatever its parts say (version 3)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NUMBERS = {
    **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"},
    **{10: "Q", 11: "q", 12: "d"},
}
STRING, ARRAY = 8, 9
ALIGNMENT = 32


@dataclass(slots=True)
class Value:
    """A value of the metadata: its type by number, for an array that of its items."""

    kind: int
    value: Any
    items: int = 0


@dataclass(slots=True)
class Tensor:
    """What the header says of a tensor; ``offset`` counts from the beginning of the data."""

    name: bytes
    shape: list[int]
    kind: int
    offset: int


@dataclass(slots=True)
class GgufFile:
    """All of a file. Keys may occur twice, and counts may lie, where they are set."""

    metadata: list[tuple[bytes, Value]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    data: bytes = b""
    version: int = 3
    counts: tuple[int, int] | None = None  # of tensors and of keys, instead of the true ones

    def encoded(self) -> bytes:
        """The file's bytes."""
        counts = self.counts or (len(self.tensors), len(self.metadata))
        head = b"GGUF" + struct.pack("<IQQ", self.version, *counts)
        for key, value in self.metadata:
            head += _text(key) + struct.pack("<I", value.kind) + _packed(value)
        for tensor in self.tensors:
            head += _text(tensor.name) + struct.pack("<I", len(tensor.shape))
            head += struct.pack(f"<{len(tensor.shape)}Q", *tensor.shape)
            head += struct.pack("<IQ", tensor.kind, tensor.offset)
        return head + bytes(-len(head) % ALIGNMENT) + self.data


def read(path: Path) -> GgufFile:
    """A sound file's parts."""
    return _Reader(path.read_bytes()).file()


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 4

    def file(self) -> GgufFile:
        version, tensors, keys = self._numbers("IQQ")
        metadata = [(self._text(), self._value()) for _ in range(keys)]
        infos = [self._tensor() for _ in range(tensors)]
        start = self._at + -self._at % ALIGNMENT
        return GgufFile(metadata, infos, self._data[start:], version)

    def _numbers(self, form: str) -> Any:
        found = struct.unpack_from(f"<{form}", self._data, self._at)
        self._at += struct.calcsize(f"<{form}")
        return found

    def _text(self) -> bytes:
        (size,) = self._numbers("Q")
        self._at += size
        return self._data[self._at - size : self._at]

    def _value(self) -> Value:
        (kind,) = self._numbers("I")
        if kind != ARRAY:
            return Value(kind, self._text() if kind == STRING else self._numbers(NUMBERS[kind])[0])
        items, count = self._numbers("IQ")
        if items == STRING:
            return Value(kind, [self._text() for _ in range(count)], items)
        return Value(kind, list(self._numbers(f"{count}{NUMBERS[items]}")), items)

    def _tensor(self) -> Tensor:
        name = self._text()
        (dimensions,) = self._numbers("I")
        shape = list(self._numbers(f"{dimensions}Q"))
        return Tensor(name, shape, *self._numbers("IQ"))


def _text(text: bytes) -> bytes:
    return struct.pack("<Q", len(text)) + text


def _packed(value: Value) -> bytes:
    if value.kind != ARRAY:
        return _item(value.kind, value.value)
    head = struct.pack("<IQ", value.items, len(value.value))
    return head + b"".join(_item(value.items, item) for item in value.value)


def _item(kind: int, item: Any) -> bytes:
    """A value as its type holds it: whole numbers cut to its bits, of another type none."""
    if kind == STRING:
        return _text(item if isinstance(item, bytes) else str(item).encode())
    form = NUMBERS.get(kind)
    number = item if isinstance(item, int | float) else 0
    if form is None:
        return b""
    if form in "fd":
        return bytes(struct.pack(f"<{form}", number))
    size = struct.calcsize(form)
    whole = int(number) if number == number and abs(number) != float("inf") else 0
    return (whole & ((1 << 8 * size) - 1)).to_bytes(size, "little")
