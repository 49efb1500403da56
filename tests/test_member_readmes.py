"""The README of each distribution: short, in its metadata, and with code that exists."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(
    path.parent / "README.md"
    for folder in ("*", "plugins/*")
    for path in ROOT.glob(f"{folder}/pyproject.toml")
)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.parent.name))
def test_it_is_short_and_names_what_exists(file: Path) -> None:
    text = file.read_text()
    project = tomllib.loads(file.with_name("pyproject.toml").read_text())["project"]
    assert text.startswith(f"# {project['name']}\n")
    assert project["readme"] == file.name
    assert len(text.split()) < 200
    assert set(re.findall(r"dist/([\w-]+)\.txt", text)) <= set(EXTRAS)
    pages = re.findall(r"docs/\w+\.md", text)
    assert pages
    assert [page for page in pages if not (ROOT / page).exists()] == []


@pytest.mark.whole
@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.parent.name))
def test_its_code_imports_what_exists(file: Path) -> None:
    for code in re.findall(r"```python\n(.*?)```", file.read_text(), flags=re.DOTALL):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                assert all(importlib.import_module(alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = importlib.import_module(str(node.module))
                for alias in node.names:
                    if not hasattr(module, alias.name):  # a module of the package
                        importlib.import_module(f"{node.module}.{alias.name}")
