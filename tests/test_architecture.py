"""docs/architecture.md: its picture is that of the code, and the rooms that it names are there."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def house() -> ModuleType:
    """tools/house.py."""
    spec = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.whole
def test_the_picture_is_of_this_code(house: ModuleType) -> None:
    assert house.with_picture(PAGE) == PAGE, "run: python tools/house.py --write"


def test_a_page_without_marks_is_refused(house: ModuleType) -> None:
    with pytest.raises(SystemExit, match="lacks the marks"):
        house.with_picture("# Architecture\n")


def test_every_file_that_it_names_is_there(house: ModuleType) -> None:
    folders = [ROOT, *(ROOT / folder for folder in house.HOUSES.values())]
    folders += [folder.parent for folder in folders[1:]]
    named = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", PAGE))
    assert len(named) > 10
    for name in named:
        assert any((folder / name).exists() for folder in folders), name
