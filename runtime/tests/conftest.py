"""A model directory for every test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runtime.tests.tiny import Checkpoint, write_config, write_tokenizer


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """Write a directory of a family, without weights; keywords change config.json."""

    def write(family: str = "llama", name: str = "model", **changes: Any) -> Path:
        directory = tmp_path / name
        directory.mkdir()
        write_config(directory, family, **changes)
        write_tokenizer(directory)
        return directory

    return write
