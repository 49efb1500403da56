"""docs/calibration.md: its snippets run, one behind another, and print what they say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.testing import FakeModel

PAGE = (Path(__file__).parents[3] / "docs" / "calibration.md").read_text("utf-8")
SNIPPETS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def likely(prompt: str, names: Sequence[str]) -> dict[str, float]:
    return {
        name: 0.2 if f"about {name}." in prompt else (1 + (len(prompt) * (place + 3)) % 7) / 100
        for place, name in enumerate(names)
    }


def test_the_snippets_run_and_print_what_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, object] = {"model": FakeModel(labels=likely), "folder": tmp_path}
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/calibration.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert "content-free+temperature" in printed
    assert "None" in printed
