"""docs/sklearn.md: its snippets run as they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from core.testing import FakeModel

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sklearn.md").read_text("utf-8")


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label[0]) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def test_the_snippets_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {
        "model": FakeModel(labels=said),
        "texts": [f"{'gb'[n % 2] * 3} {n}" for n in range(24)],
        "labels": [("good", "bad")[n % 2] for n in range(24)],
    }
    for snippet in re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL):
        exec(compile(snippet, "docs/sklearn.md", "exec"), names)
    assert "'level'" in capsys.readouterr().out
