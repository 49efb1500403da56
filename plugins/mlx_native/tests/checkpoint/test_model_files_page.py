"""docs/model_files.md: its tables are those that the code reads."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "model_files.md").read_text("utf-8")


@pytest.fixture
def tool() -> ModuleType:
    """tools/model_files.py."""
    spec = importlib.util.spec_from_file_location("model_files", ROOT / "tools" / "model_files.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_code(tool: ModuleType) -> None:
    assert tool.with_tables(PAGE) == PAGE, "run: python tools/model_files.py --write"
    assert set(re.findall("<!-- table: (.*?) -->", PAGE)) == {*tool.KEYS, *tool.NAMES}


def test_every_key_of_every_table_is_on_the_page(tool: ModuleType) -> None:
    for keys in tool.KEYS.values():
        for name, key in keys.items():
            assert f"`{name}`" in PAGE
            assert key.why in PAGE
