"""docs/adapters.md: its snippets run, and its commands and names are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from core_mlx_native.adapters.apply import MODULES
from plugins.mlx_native.tests.adapters.conftest import Write, drawn
from runtime.tests.tiny import Checkpoint

PAGE = (Path(__file__).parents[4] / "docs" / "adapters.md").read_text("utf-8")
SNIPPETS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_snippets_run(
    checkpoint: Checkpoint, lora: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    path = checkpoint()
    names: dict[str, object] = {
        "model_dir": path,
        "news": lora(drawn(path, 1), "news"),
        "mail": lora(drawn(path, 2), "mail"),
    }
    assert len(SNIPPETS) == 2
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/adapters.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 6
    assert "name='adapter', value='news'" in printed[1]
    assert {line for line in printed if "adapter" not in line} <= {"a", "no"}


def test_it_names_every_module() -> None:
    assert all(f"`{name}`" in PAGE for name in MODULES)
