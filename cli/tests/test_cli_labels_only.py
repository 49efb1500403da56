"""``infer-cli classify --labels-only``: the label alone, on stdout and in jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet
import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ALONE = ("classify", "--labels", "a,b", "--labels-only", "-m")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Forty rows with their right labels, of which one fails."""
    file = tmp_path / "rows.jsonl"
    texts = ["BOOM" if n == 7 else "a b a" if n % 3 else f"b b {n}" for n in range(40)]
    lines = [json.dumps({"text": text, "gold": text[0]}) for text in texts]
    file.write_text("\n".join(lines) + "\n")
    return file


def test_lines_and_json_have_the_label_and_the_error(infer_cli: InferCli, fake_model: Path) -> None:
    lines = infer_cli(*ALONE, fake_model, "aa b", "b b")
    assert lines.stdout.splitlines() == ["line\ttext\tlabel\terror", "1\taa b\ta\t", "2\tb b\tb\t"]
    result = infer_cli(*ALONE, fake_model, "--json", "aa b")
    assert json.loads(result.stdout) == {"line": 1, "text": "aa b", "label": "a", "error": None}
    first = infer_cli(*ALONE, fake_model, "--show-prompt", "aa b")
    assert first.exit_code == 0
    assert "label: 'a'" in first.stderr


@pytest.mark.parametrize("form", ["csv", "parquet", "jsonl", "txt"])
def test_a_job_has_the_same_columns_and_its_summary_no_margin(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path, form: str
) -> None:
    out, report = tmp_path / f"out.{form}", tmp_path / "report.json"
    done = infer_cli(
        *ALONE, fake_model, "-i", rows, "-o", out, "--gold", "gold", "--report", report
    )
    assert done.exit_code == 5, done.output  # a row failed
    assert "correct: 39 of 39" in done.stderr
    assert "margin" not in done.stderr
    assert "calibration" not in done.stderr
    assert json.loads(report.read_text())["labels"]["a"] == {"rows": 25, "mean_margin": None}

    if form == "txt":
        assert out.read_text().splitlines()[:9] == ["b", "a", "a", "b", "a", "a", "b", "", "a"]
        return
    if form == "parquet":
        names = pyarrow.parquet.read_table(out).column_names
    else:
        line = out.read_text().splitlines()[0]
        names = list(json.loads(line)) if form == "jsonl" else line.split(",")
    assert set(names) == {"line", "text", "gold", "label", "error"}


def test_a_job_does_not_resume_as_one_of_the_other_kind(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    infer_cli(*ALONE, fake_model, "-i", rows, "-o", out, "--limit", "10")
    whole = ("classify", "--labels", "a,b", "-m", fake_model)
    refused = infer_cli(*whole, "-i", rows, "-o", out, "--limit", "10", "--resume")
    assert refused.exit_code == 2
    assert "options" in refused.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--labels", "a,b", "--min-margin", "0.2"), "--min-margin requires label probab"),
        (("--task", __file__), "--task requires label probabilities"),
        (("--head", __file__), "--head requires label probabilities"),
        ((), "--labels-only requires --labels."),
    ],
)
def test_what_needs_more_is_refused_by_name(
    infer_cli: InferCli, fake_model: Path, flags: tuple[str, ...], message: str
) -> None:
    refused = infer_cli("classify", "--labels-only", "-m", fake_model, *flags, "a text")
    assert refused.exit_code == 2
    assert message in refused.stderr
