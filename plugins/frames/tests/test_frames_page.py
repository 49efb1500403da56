"""docs/frames.md and examples/csv_with_pandas.py run as they stand."""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import polars as pl
import pytest

import core_tasks
from core.testing import FakeModel

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "frames.md").read_text("utf-8")


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def test_the_snippets_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = FakeModel(labels=said)
    texts = ["finance", "sports", None]
    core_tasks.Task("{text} This is", ("finance", "sports")).fit_prior(
        model, ["a", "b"], "batch"
    ).save("news.toml")
    names: dict[str, object] = {
        "model": model,
        "df": pd.DataFrame({"text": texts}, index=[5, 6, 7]),
        "frame": pl.DataFrame({"text": texts}),
    }
    snippets = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(snippets) == 3
    for snippet in snippets:
        exec(compile(snippet, "docs/frames.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "finance" in printed
    assert "EmptyPromptError" not in printed


def test_the_example_labels_a_file(tmp_path: Path) -> None:
    source, target = tmp_path / "news.csv", tmp_path / "labelled.csv"
    source.write_text('id,text\n1,"finance, finance"\n2,\n3,sports\n')
    example = runpy.run_path(str(ROOT / "examples" / "csv_with_pandas.py"))
    example["label_file"](FakeModel(labels=said), source, target)
    written = pd.read_csv(target)
    assert written["id"].tolist() == [1, 2, 3]
    assert written["label"].fillna("").tolist() == ["finance", "", "sports"]
    assert written["error"].isna().all()
