"""docs/tune.md: its snippets run as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import core_tasks
from core.testing import FakeModel

PAGE = Path(__file__).parents[3] / "docs" / "tune.md"


def _said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label[0]) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def test_the_snippets_run(tmp_path: Path) -> None:
    code = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert code
    names: dict[str, Any] = {
        "model": FakeModel(labels=_said),
        "texts": [f"{'fs'[n % 2]} {n}" for n in range(24)],
        "gold": [("finance", "sports")[n % 2] for n in range(24)],
        "folder": tmp_path,
    }
    for snippet in code:
        exec(compile(snippet, str(PAGE), "exec"), names)  # the page's own code
    assert core_tasks.load_task(tmp_path / "news.toml").labels == ("finance", "sports")
