"""Damage to a file that this project wrote: its structure, its numbers, its bytes, its size.

TOML, JSON, JSON lines and safetensors, whose header is JSON, and may hold JSON in a text. Sometimes
there is a pipe, a device, a directory or nothing in the file's place.
"""

from __future__ import annotations

import json
import os
import random
import re
import struct
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .mutations import mutate_bytes, mutate_value

_NUMBER = re.compile(rb"-?\b\d+(?:\.\d+)?(?:[eE][-+]?\d+)?\b")
_NUMBERS = (
    *(b"0", b"-0.0", b"1", b"-1", b"7", b"0.5", b"1.0", b"2", b"1e-320", b"5e-324", b"1e-308"),
    *(b"1e308", b"-1e308", b"1.7976931348623157e308", b"1e999", b"-1e999", b"1e101", b"1e17"),
    *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"inf", b"-inf", b"true", b"null", b'"1"'),
    *(b"2147483648", b"9007199254740993", b"18446744073709551616", b"9" * 400, b"9" * 5_000),
    *(b"99999999999999", b"0.9999999999999999", b"1e-12", b"[1]", b"0x7", b"1_000", b"2026-11-25"),
)
_PACKED = (
    *(0.0, 1e-320, 1e30, -1e30, 3e38, 1e99, 1e101, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf")),
)
_LARGE = (
    *(b"[" * depth + b"]" * depth for depth in (60, 70, 1_000)),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in (60, 70, 1_000)),
    *(b"{a=" * depth + b"1" + b"}" * depth for depth in (60, 70, 1_000)),
    *(b"[" * 100_000, b'"' + b"x" * 1_000_000 + b'"', b"[" + b"0," * 300_000 + b"0]"),
    *(
        b"a." * 20_000 + b"b = 1\n",
        b"\n[a]\n[a.b]\n" * 9,
        b"\n" + b"[[a]]\n" * 30_000,
        b"\n" * 9_999,
    ),
    *(b"[" + b"[0]," * 1_100_000 + b"0]", b'"\\ud800"', b"\xff\xfe", b"\0" * 4_096),
)
_SPARSE = 2**40


def damage(file: Path, dice: random.Random) -> None:
    """Put something else in a file's place, or change one to three things in it."""
    if dice.random() < 0.05:
        file.unlink()
        dice.choice(_PLACES)(file)
        return
    data = file.read_bytes()
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = _damaged(data, file.suffix, dice)
    # Last, since what is changed further would be parsed here without a limit.
    file.write_bytes(_grown(data, file.suffix, dice) if dice.random() < 0.1 else data)


def _sparse(file: Path) -> None:
    with open(file, "wb") as stream:
        stream.truncate(_SPARSE)


_PLACES: tuple[Callable[[Path], object], ...] = (
    os.mkfifo,
    os.mkdir,
    _sparse,
    lambda file: file.symlink_to("/dev/zero"),
    lambda file: file.symlink_to(file.name),
    lambda file: None,
)


def _damaged(data: bytes, suffix: str, dice: random.Random) -> bytes:
    kind = dice.random()
    if kind < 0.25:
        return mutate_bytes(data, dice)
    if suffix == ".safetensors":
        return _in_tensors(data, dice)
    return _in_text(data, suffix, dice)


def _in_text(data: bytes, suffix: str, dice: random.Random) -> bytes:
    """Change a value of a document, or of one of its lines; a number; or its size."""
    kind = dice.random()
    if suffix == ".journal" and kind < 0.9:
        return _in_lines(data, dice)
    return _structure(data, suffix, dice) if kind < 0.5 else _numbers(data, dice)


def _in_lines(data: bytes, dice: random.Random) -> bytes:
    lines = data.splitlines(keepends=True) or [b"\n"]
    at, other = dice.randrange(len(lines)), dice.randrange(len(lines))
    kind = dice.randrange(8)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(at, lines[other])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = _in_text(lines[at].rstrip(b"\n"), ".json", dice) + b"\n"
    return b"".join(lines)


def _structure(data: bytes, suffix: str, dice: random.Random) -> bytes:
    try:
        text = data.decode()
        value: Any = tomllib.loads(text) if suffix == ".toml" else json.loads(text)
    except (ValueError, RecursionError):  # an earlier change broke it
        return mutate_bytes(data, dice)
    changed = mutate_value(value, dice)
    if suffix == ".toml" and isinstance(changed, dict):
        text = "".join(f"{_toml(name)} = {_toml(each)}\n" for name, each in changed.items())
    else:
        text = json.dumps(changed)
    return text.encode(errors="surrogatepass")


def _toml(value: Any) -> str:
    """Any value of JSON in TOML's words; null, which it has not, is one that it does not read."""
    if isinstance(value, Mapping):
        pairs = (f"{_toml(str(name))} = {_toml(each)}" for name, each in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, float | int) and not isinstance(value, bool):
        return repr(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _numbers(data: bytes, dice: random.Random) -> bytes:
    """Put another number, or what is none, in a number's place."""
    places = [match.span() for match in _NUMBER.finditer(data[: 2**20])]
    if not places:
        return mutate_bytes(data, dice)
    start, end = dice.choice(places)
    number = _plausible(dice) if dice.random() < 0.5 else dice.choice(_NUMBERS)
    return data[:start] + number + data[end:]


def _plausible(dice: random.Random) -> bytes:
    """A number that may well be in range."""
    size = dice.choice((dice.random(), 10 ** dice.uniform(-14, 12), dice.randrange(9)))
    return repr(dice.choice((1, 1, -1)) * size).encode()


def _grown(data: bytes, suffix: str, dice: random.Random) -> bytes:
    """Put something long or deep at a value's place, or at a line's beginning."""
    if suffix == ".safetensors" and (parts := _parted(data)):
        header = _grown(parts[0], ".json", dice)
        return struct.pack("<Q", len(header)) + header + parts[1]
    places = [
        0,
        len(data),
        *(match.start() for match in re.finditer(rb"(?<=[:=\[] )|(?<=\n)", data)),
    ]
    at = dice.choice(places)
    return data[:at] + dice.choice(_LARGE) + data[at:]


def _in_tensors(data: bytes, dice: random.Random) -> bytes:
    """Change the header, a text of JSON in it, or a number of an array."""
    parts = _parted(data)
    if parts is None:
        return mutate_bytes(data, dice)
    header, numbers = parts
    if dice.random() < 0.4 and len(numbers) >= 8:
        return data[: -len(numbers)] + _in_numbers(numbers, dice)
    changed = _in_header(header, dice)
    lengths = (0, 1, len(header), 2**40, 2**63)
    length = len(changed) if dice.random() < 0.95 else dice.choice(lengths)
    return struct.pack("<Q", length) + changed + numbers


def _parted(data: bytes) -> tuple[bytes, bytes] | None:
    """The header and the numbers of a safetensors file, where its length field is sound."""
    size = struct.unpack("<Q", data[:8])[0] if len(data) >= 8 else len(data)
    return None if size > len(data) - 8 else (data[8 : 8 + size], data[8 + size :])


def _in_header(header: bytes, dice: random.Random) -> bytes:
    try:
        value = json.loads(header)
        metadata = value["__metadata__"]
        name = dice.choice(sorted(metadata))
        inner = metadata[name].encode()
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return _in_text(header, ".json", dice)
    if dice.random() < 0.4:
        return _in_text(header, ".json", dice)
    metadata[name] = _in_text(inner, ".json", dice).decode(errors="replace")
    return json.dumps(value).encode()


def _in_numbers(numbers: bytes, dice: random.Random) -> bytes:
    """Write some odd floats over some bytes, or as many as there are."""
    form = dice.choice(("<f", "<d"))
    number = struct.pack(form, _fitting(dice.choice(_PACKED), form))
    most = len(numbers) // len(number)
    count = dice.choice((1, 1, 2, most))
    at = dice.randrange(most - count + 1) * len(number)
    return numbers[:at] + number * count + numbers[at + len(number) * count :]


def _fitting(number: float, form: str) -> float:
    return number if form == "<d" or not 3e38 < abs(number) < float("inf") else 3e38
