"""The notes in an adapter's file on its training: read, or nothing where they are odd."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import core
from core_mlx_native.train.notes import notes_of, read_notes

CONFIG = core.TrainConfig(template="{text}:", labels=("ab", "no"), label_prefix="")


def write(directory: Path, data: bytes | dict[str, Any]) -> None:
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    (directory / "adapter_config.json").write_bytes(text)


def test_notes_are_read_as_they_were_written(tmp_path: Path) -> None:
    write(tmp_path, {"rank": 8, **notes_of(CONFIG)})
    found = read_notes(tmp_path)
    assert found == {"template": "{text}:", "labels": ["ab", "no"], "label_prefix": ""}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[1]",
        b"[" * 100_000,
        b'{"core_training": ' + b'{"a":' * 90 + b"1" + b"}" * 91,
        b'{"core_training": {"template": ' + b"9" * 5_000 + b"}}",
        b'{"core_training": "\xff"}',
        {"rank": 8},
        {"core_training": 3},
        {"core_training": {"labels": 3}},
        {"core_training": {"template": ["{text}"]}},
    ],
    ids=range(10),
)
def test_odd_notes_say_nothing(tmp_path: Path, data: bytes | dict[str, Any]) -> None:
    write(tmp_path, data)
    assert read_notes(tmp_path) == {}


def test_where_there_is_no_file_nothing_is_said(tmp_path: Path) -> None:
    assert read_notes(tmp_path) == {}
    os.mkfifo(tmp_path / "adapter_config.json")
    assert read_notes(tmp_path) == {}
