"""The GGUF header reader: what it reads, and that no bytes make it fail in any other way."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidModelError, ModelNotFoundError
from core.models.gguf import BIG_ARRAY, GgufHeader, GgufTensor, SkippedArray, read_gguf

U8, BOOL, STRING, ARRAY, U32, F32, U64, I32 = 0, 7, 8, 9, 4, 6, 10, 5
PACKED = {U8: "<B", BOOL: "<B", U32: "<I", F32: "<f", U64: "<Q", I32: "<i", 11: "<q", 12: "<d"}


def string(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def value(kind: int, item: Any) -> bytes:
    if kind == STRING:
        return string(item)
    if kind == ARRAY:
        element, items = item
        body = b"".join(value(element, one) for one in items)
        return struct.pack("<IQ", element, len(items)) + body
    return struct.pack(PACKED[kind], item)


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return string(name) + dimensions + struct.pack("<IQ", kind, offset)


def gguf(
    pairs: list[tuple[str, int, Any]],
    tensors: list[bytes] | None = None,
    version: int = 3,
    data: bytes = b"\0" * 64,
) -> bytes:
    infos = tensors or []
    head = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs))
    body = b"".join(
        string(key) + struct.pack("<I", kind) + value(kind, v) for key, kind, v in pairs
    )
    return head + body + b"".join(infos) + data


MANY = BIG_ARRAY + 1
PAIRS: list[tuple[str, int, Any]] = [
    ("general.architecture", STRING, "llama"),
    ("general.file_type", U32, 15),
    ("eps", F32, 0.5),
    ("flag", BOOL, 2),
    ("big", U64, 2**63),
    ("negative", 11, -5),
    ("exact", 12, 0.1),
    ("few", ARRAY, (STRING, ["a", "é", ""])),
    ("flags", ARRAY, (BOOL, [0, 1])),
    ("nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])])),
    ("tokens", ARRAY, (STRING, [f"t{i}" for i in range(MANY)])),
    ("scores", ARRAY, (F32, [0.25] * MANY)),
    ("last", I32, -1),
]
TENSORS = [tensor("w", (4, 3), 8), tensor("norm", (4,), 0, 32)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def read(path: Path, data: bytes, **options: Any) -> GgufHeader:
    path.write_bytes(data)
    return read_gguf(path, **options)


@pytest.mark.parametrize("version", [2, 3])
def test_reads_every_kind_of_value(path: Path, version: int) -> None:
    header = read(path, gguf(PAIRS, version=version), arrays=True)
    assert header.version == version
    assert header.metadata == {
        "general.architecture": "llama",
        "general.file_type": 15,
        "eps": 0.5,
        "flag": True,
        "big": 2**63,
        "negative": -5,
        "exact": 0.1,
        "few": ["a", "é", ""],
        "flags": [False, True],
        "nested": [[1, 2], ["x"]],
        "tokens": [f"t{i}" for i in range(MANY)],
        "scores": [0.25] * MANY,
        "last": -1,
    }
    assert header.metadata["flag"] is True


def test_large_arrays_are_skipped_unless_asked_for(path: Path) -> None:
    metadata = read(path, gguf(PAIRS)).metadata
    assert metadata["tokens"] == metadata["scores"] == SkippedArray(MANY)
    assert metadata["few"] == ["a", "é", ""]
    assert metadata["last"] == -1


def test_tensor_infos_and_where_the_data_begins(path: Path) -> None:
    header = read(path, gguf(PAIRS[:1], TENSORS), tensors=True)
    assert header.tensors == (GgufTensor("w", (4, 3), 8, 0), GgufTensor("norm", (4,), 0, 32))
    infos_end = len(gguf(PAIRS[:1], TENSORS, data=b""))
    assert header.data_offset == (infos_end + 31) // 32 * 32
    assert read(path, gguf(PAIRS[:1], TENSORS)).tensors == ()


def test_the_files_own_alignment_counts(path: Path) -> None:
    pairs = [("general.alignment", U32, 64)]
    assert read(path, gguf(pairs, TENSORS, data=b"\0" * 99), tensors=True).data_offset % 64 == 0


def test_only_stops_when_it_knows_enough(path: Path) -> None:
    whole = gguf(PAIRS)
    cut = whole[: whole.index(b"\x05\0\0\0\0\0\0\0exact")]
    header = read(path, cut + b"\0" * 200, only=["general.architecture", "general.file_type"])
    assert header.metadata == {"general.architecture": "llama", "general.file_type": 15}
    assert "last" in read(path, whole, only=["general.architecture", "no such key"]).metadata


def lying_string(length: int) -> bytes:
    return b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, length) + b"key"


def lying_array(kind: int, count: int, padding: int = 64) -> bytes:
    pair = string("key") + struct.pack("<IIQ", ARRAY, kind, count)
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair + b"\0" * padding


def nested(levels: int) -> bytes:
    deep = struct.pack("<IQ", ARRAY, 1) * levels + struct.pack("<IQB", U8, 1, 1)
    pair = string("key") + struct.pack("<I", ARRAY) + deep
    return b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + pair


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "more than fit"),
        (b"GGUF", "more than fit"),
        (b"PK\3\4" + b"\0" * 99, "start with 'GGUF'"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version is 1"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version is 4"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "version is 0"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**63), "metadata entries"),
        (lying_string(2**64 - 1), "more than fit"),
        (lying_array(STRING, 2**63), "more than"),
        (lying_array(U8, 2**22), "more than fit"),
        (lying_array(ARRAY, 2**20), "more than fit"),
        (lying_array(STRING, 2**22 + 1), "elements"),
        (lying_array(77, 1), "unknown type 77"),
        (nested(5), "nested"),
        (nested(5000), "nested"),
        (gguf([("k", U8, 1), ("k", U8, 2)]), "twice"),
        (gguf([("k", STRING, b"\xff")]), "utf-8"),
        (gguf([], [tensor("w", (1, 1, 1, 1, 1))]), "5 dimensions"),
        (gguf([], [tensor("w", (1,), 0, 2**40)]), "after the end of the file"),
        (gguf([("general.alignment", U32, 0)], TENSORS), "alignment"),
        (gguf([("general.alignment", STRING, "x")], TENSORS), "alignment"),
        (gguf([], [b"\0" * 8], data=b""), "tensors, more than fit"),
    ],
)
def test_a_broken_or_lying_file(path: Path, data: bytes, reason: str) -> None:
    with pytest.raises(InvalidModelError, match=reason) as caught:
        read(path, data, arrays=True, tensors=True)
    assert str(path) in str(caught.value)


def test_a_lie_in_a_skipped_array_is_found_too(path: Path) -> None:
    strings = struct.pack("<Q", 0) * MANY + struct.pack("<Q", 2**62)
    data = lying_array(STRING, MANY + 1, 0) + strings
    with pytest.raises(InvalidModelError, match="does not fit"):
        read(path, data)


def test_millions_of_elements_in_many_arrays_are_refused(path: Path) -> None:
    # A sparse file of zeros: each of its "strings" is empty, and there would be no end to them.
    path.write_bytes(lying_array(STRING, 2**30, 0))
    with path.open("r+b") as file:
        file.truncate(2**34)
    with pytest.raises(InvalidModelError, match="elements"):
        read_gguf(path)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError):
        read_gguf(tmp_path / "nowhere.gguf")


SOUND = gguf(PAIRS[:10], TENSORS)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the examples of one property share."""
    return tmp_path_factory.mktemp("headers")


@given(data=st.data())
def test_a_damaged_file_gives_a_header_or_a_typed_error(scratch: Path, data: st.DataObject) -> None:
    damaged = bytearray(SOUND)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(SOUND) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(SOUND)))
    path = scratch / "damaged.gguf"
    for content in (bytes(damaged), bytes(damaged[:cut])):
        for arrays in (False, True):
            try:
                header = read(path, content, arrays=arrays, tensors=True)
            except InvalidModelError:
                continue
            assert header.version in (2, 3)


@given(blob=st.binary(max_size=120))
def test_any_bytes_after_the_magic(scratch: Path, blob: bytes) -> None:
    path = scratch / "any.gguf"
    try:
        header = read(path, b"GGUF\3\0\0\0" + blob, arrays=True, tensors=True)
    except InvalidModelError:
        return
    assert header.version == 3
