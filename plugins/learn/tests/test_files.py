"""Heads as files: what is written is read again, and nothing else is believed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from core.errors import OutputError
from core_learn import Head, HeadFileError, load_head, save_head
from core_learn.fewshot import _probabilities
from core_learn.files import MOST

ARRAYS = ("weights", "bias", "probes")
Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def head() -> Head:
    random = np.random.default_rng(0)
    return Head(
        labels=("ja", "né <b>", "\u2028"),
        template="{text} is",
        layer=2,
        num_layers=3,
        weights=random.normal(size=(5, 3)),
        bias=random.normal(size=3),
        probes=random.normal(size=(2, 5)),
        scale=1.5,
        kind="lda",
        strength=0.5,
        rows=12,
        accuracy=0.75,
    )


@pytest.fixture
def file(head: Head, tmp_path: Path) -> Path:
    save_head(head, tmp_path / "head.safetensors")
    return tmp_path / "head.safetensors"


def same(left: Head, right: Head) -> bool:
    every = [field.name for field in dataclasses.fields(Head)]
    return all(np.array_equal(getattr(left, name), getattr(right, name)) for name in every)


def changed(file: Path, change: Change) -> None:
    """Change the header of a file, and leave its numbers."""
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def fact(name: str, value: object) -> Change:
    def change(header: dict[str, Any]) -> None:
        facts = json.loads(header["__metadata__"]["core_learn.head"])
        facts[name] = value
        header["__metadata__"]["core_learn.head"] = json.dumps(facts)

    return change


def test_what_is_written_is_read_again(head: Head, file: Path) -> None:
    assert same(load_head(file), head)
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    save_head(dataclasses.replace(head, accuracy=None), file)
    assert load_head(file).accuracy is None


def test_others_read_the_numbers(head: Head, file: Path) -> None:
    found = load_file(file)
    assert found.keys() == set(ARRAYS)
    for name in ARRAYS:
        np.testing.assert_array_equal(found[name], getattr(head, name))


def test_a_stored_head_is_read(head: Head) -> None:
    """Of format 1, as it was first written: later versions read it, too."""
    assert same(load_head(Path(__file__).parent / "data" / "format_1.safetensors"), head)


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("weights"),
        lambda header: header.pop("__metadata__"),
        lambda header: header["weights"].update(dtype="F32"),
        lambda header: header["weights"].update(shape=[-5, -3]),
        lambda header: header["weights"].update(shape=[3, 5]),
        lambda header: header["weights"].update(shape=[10**9, 10**9]),
        lambda header: header["bias"].update(data_offsets=[0, 10**12]),
        lambda header: header["bias"].update(data_offsets=[-24, 0]),
        lambda header: header["probes"].update(shape="ab"),
        fact("labels", ["a", "a", "b"]),
        fact("labels", ["a", "b"]),
        fact("labels", 3),
        fact("layer", 4),
        fact("scale", 0.0),
        fact("scale", "1"),
        fact("template", 1),
        fact("more", 1),
    ],
    ids=itertools.count(),
)
def test_a_broken_file_is_an_error_of_its_own(file: Path, change: Change) -> None:
    changed(file, change)
    with pytest.raises(HeadFileError, match="Learn it again"):
        load_head(file)


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 7, b"\xff" * 64, struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 9) + b"[" * 9],
    ids=["empty", "short", "long header", "no table", "no JSON"],
)
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(HeadFileError):
        load_head(tmp_path / "file")


def test_every_shorter_file_is_refused(file: Path) -> None:
    data = file.read_bytes()
    for size in range(0, len(data), 7):
        file.write_bytes(data[:size])
        with pytest.raises(HeadFileError):
            load_head(file)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bias": np.array([0.0, np.nan, 1.0])}, "bias has numbers that are not finite"),
        ({"weights": np.full((5, 3), -1e101)}, r"weights has numbers beyond 1e\+100"),
        ({"probes": np.full((2, 5), 1e308)}, r"probes has numbers beyond 1e\+100"),
        ({"probes": np.zeros((2, 4))}, "do not match its 3 labels"),
        ({"scale": 0.0}, "scale is 0.0, not a number from 1e-100 to"),
        ({"scale": 1e300}, r"scale is 1e\+300, not a number"),
        ({"scale": np.nan}, "scale is nan, not a number"),
        ({"strength": -1.0}, "strength is -1.0"),
        ({"accuracy": 1.5}, "accuracy is 1.5, not a number from 0 to 1"),
        ({"layer": 4}, "layer is 4, not a whole number from 0 to 3"),
        ({"rows": -1}, "rows is -1"),
        ({"labels": ("a", "b", "\ud800")}, r"labels\[2\] is .*, which is not Unicode text"),
        ({"labels": ("a", "b", "b")}, "do not match its 3 labels"),
        ({"template": "text"}, "its template has no {text}"),
    ],
)
def test_a_head_that_makes_no_probabilities_cannot_be_made(
    head: Head, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(HeadFileError, match=reason):
        dataclasses.replace(head, **change)


def test_huge_numbers_are_refused_where_a_file_holds_them(head: Head, file: Path) -> None:
    """Finite weights that overflow in a product would answer a label, and NaN with it."""
    data = file.read_bytes()
    at = data.index(head.weights.tobytes())
    file.write_bytes(data[:at] + np.array([1e308]).tobytes() + data[at + 8 :])
    with pytest.raises(HeadFileError, match=rf"^'{file}': This is not a head .* beyond 1e\+100"):
        load_head(file)


def test_the_largest_numbers_make_probabilities(head: Head) -> None:
    for sign in (1.0, -1.0):
        weights = np.full((5, 3), sign * MOST)
        weights[::2] *= -1
        large = dataclasses.replace(head, weights=weights, bias=-weights[0], scale=MOST)
        states = np.full((2, 5), np.finfo(np.float32).max, np.float64)
        likely = _probabilities(large, states)
        np.testing.assert_allclose(likely.sum(axis=1), 1.0)


def test_what_is_not_a_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(HeadFileError, match="it is a pipe or a device, not a file"):
            load_head(path)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(2**40)  # sparse: it takes no space on disk
    with pytest.raises(HeadFileError, match="it is larger than 1073741824 bytes"):
        load_head(tmp_path / "large")


def test_unknown_keys_and_a_newer_format_are_refused_by_name(file: Path) -> None:
    data = file.read_bytes()
    for change, reason in (
        (lambda header: header.update(more={}), "it has the unknown key 'more'"),
        (fact("more", 1), "it has the unknown key 'more'; the keys are accuracy, kind, labels"),
        (lambda header: header["__metadata__"].update({"a": "b"}), "__metadata__ has the unknown"),
        (_in_format("2"), "in format 2, but this version reads formats up to 1. Upgrade to read"),
        (_in_format("9" * 5_000), "its format is '999.*, not a number from 1"),
        (_in_format("-1"), "its format is '-1', not a number from 1"),
    ):
        file.write_bytes(data)
        changed(file, change)
        with pytest.raises(HeadFileError, match=reason):
            load_head(file)


def _in_format(version: str) -> Change:
    return lambda header: header["__metadata__"].update({"core_learn.format": version})


def test_a_head_that_cannot_be_written_leaves_nothing(head: Head, tmp_path: Path) -> None:
    (tmp_path / "head").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        save_head(head, tmp_path / "head")
    assert [path.name for path in tmp_path.iterdir()] == ["head"]


def test_a_head_takes_the_place_of_a_head_alone(head: Head, tmp_path: Path) -> None:
    file, mine = tmp_path / "head", tmp_path / "model.safetensors"
    for _ in range(2):
        save_head(head, file)
    assert file.stat().st_mode & 0o777 == 0o600  # it was learned from texts
    mine.write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(OutputError, match="is not a head written by this program"):
        save_head(head, mine)
    assert mine.read_bytes() == struct.pack("<Q", 2) + b"{}"
