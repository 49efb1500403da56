"""docs/ray.md and examples/daft_query.py: Daft's part runs as it stands."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.api import close_shared_models
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

ROOT = Path(__file__).resolve().parents[3]


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A model, by its path, and a folder of news."""
    made = FakeBackend(labels=said)
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, made.name: made})
    folder = tmp_path / "news"
    folder.mkdir()
    for part in range(2):
        texts = [f"{number} {('finance', 'sports')[part]}" for number in range(3)]
        pq.write_table(pa.table({"text": texts}), folder / f"{part}.parquet")
    close_shared_models()
    yield {"folder": str(folder), "path": str(write_model(tmp_path / "model"))}
    close_shared_models()


def test_the_snippet(names: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "ray.md").read_text("utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    [snippet] = [each for each in snippets if "core_daft" in each]
    named = snippet.replace("CoreProvider(path, ", "CoreProvider(path, backend='fake', ")
    assert named != snippet
    exec(compile(named, "docs/ray.md", "exec"), names)
    printed = ast.literal_eval(capsys.readouterr().out)
    assert sorted(printed) == ["finance"] * 3 + ["sports"] * 3  # files come in any order


def test_the_example(names: dict[str, Any]) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "daft_query.py"))
    counts = example["count_labels"](names["path"], f"{names['folder']}/*.parquet", "fake")
    assert counts == {"label": ["finance", "sports"], "rows": [3, 3]}
