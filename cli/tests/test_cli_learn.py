"""Heads on the command line: made by ``learn``, asked by ``classify --head``."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core_learn.files import load_head

if TYPE_CHECKING:
    from click.testing import Result


WORDS = {"weather": "rain wind storm cloud", "sport": "goal match team ball"}

Run = Callable[..., "Result"]


def text(label: str, number: int) -> str:
    """A text of a label: three of its words."""
    words = WORDS[label].split()
    return " ".join(words[(number + place) % 4] for place in range(3))


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """Eight texts of each label, and a row without one."""
    file = tmp_path / "gold.csv"
    lines = [f"{text(label, n)},{label}" for n in range(8) for label in WORDS]
    file.write_text("\n".join(["text,topic", *lines, "a text,"]))
    return file


@pytest.fixture
def head(run: Run, gold: Path, tmp_path: Path) -> Path:
    file = tmp_path / "head.safetensors"
    done = run("learn", "-i", gold, "--gold", "topic", "-o", file)
    assert done.exit_code == 0, done.output
    return file


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Texts to be judged, of which one cannot be."""
    file = tmp_path / "rows.jsonl"
    asked = [{"text": text(label, n), "topic": label} for n in range(150) for label in WORDS]
    lines = [json.dumps(row) for row in [*asked, {"text": "", "topic": "sport"}]]
    file.write_text("\n".join(lines))
    return file


def test_a_head_is_learned_and_what_was_chosen_is_told(
    run: Run, gold: Path, tmp_path: Path
) -> None:
    file = tmp_path / "head.safetensors"
    done = run("learn", "-i", gold, "--gold", "topic", "-o", file, "-v", "--template", "Of: {text}")
    assert done.exit_code == 0, done.output
    found = load_head(file)
    assert (found.labels, found.rows, found.template) == (("sport", "weather"), 16, "Of: {text}")
    assert "1 row skipped: no gold label" in done.stderr
    assert "trained on 16 rows: sport 8, weather 8" in done.stderr
    assert "expected accuracy 100.0 %, estimated by nested cross-validation" in done.stderr
    assert f"-i FILE --head {file}" in done.stderr
    assert "  layer 2, ridge, strength" in done.stderr


def test_what_is_tried_can_be_said(run: Run, gold: Path, tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    flags = ("--layer", "-1", "--kind", "lda", "-o", file)
    assert run("learn", "-i", gold, "--gold", "topic", *flags).exit_code == 0
    assert (load_head(file).kind, load_head(file).layer) == ("lda", 2)
    again = run("learn", "-i", gold, "--gold", "topic", *flags)
    assert "exists. Replace it (--overwrite" in again.output
    assert run("learn", "-i", gold, "--gold", "topic", *flags, "--overwrite").exit_code == 0


def test_rows_are_answered_at_level_two(run: Run, head: Path, rows: Path) -> None:
    done = run("classify", "--head", head, "-i", rows, "--json", "--gold", "topic")
    assert done.exit_code == 5, done.output  # one of them failed
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert all(row["label"] == row["topic"] for row in answers[:-1])
    first = answers[0]
    assert first["level"] == "head"
    assert sum(first["probabilities"].values()) == pytest.approx(1.0)
    assert first["margin"] == pytest.approx(2 * max(first["probabilities"].values()) - 1)
    assert not {"label_mass", "logprobs", "token"} & first.keys()
    assert answers[-1]["error"]["type"] == "EmptyPromptError"
    assert answers[-1]["level"] == "head"
    assert "correct: 300 of 300" in done.stderr


def test_a_head_is_asked_in_a_job_as_on_stdout_and_alone(
    run: Run, head: Path, rows: Path, tmp_path: Path
) -> None:
    whole = run("classify", "--head", head, "-i", rows, "--to", "csv").stdout
    assert whole.splitlines()[0] == "line,text,topic,label,probability,margin,level,error"
    out = tmp_path / "out.csv"
    assert run("classify", "--head", head, "-i", rows, "-o", out).exit_code == 5
    assert out.read_text() == whole
    alone = run("classify", "--head", head, "--to", "csv", text("sport", 1)).stdout
    told = {line.split(",", 2)[1]: line.rsplit(",", 5)[1:] for line in whole.splitlines()[:-1]}
    assert alone.splitlines()[1].rsplit(",", 5)[1:] == told[text("sport", 1)]


def test_a_job_goes_on_with_its_own_head_alone(
    run: Run, head: Path, gold: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    asked = ("classify", "--head", head, "-i", rows, "-o", out)
    assert run(*asked).exit_code == 5
    assert "is already complete" in run(*asked, "--resume").output
    again = ("--layer", "0", "--overwrite", "-o", head)
    assert run("learn", "-i", gold, "--gold", "topic", *again).exit_code == 0
    refused = run(*asked, "--resume")
    assert refused.exit_code == 2, refused.output
    assert "task" in refused.output


def test_a_shown_prompt_is_the_heads(run: Run, gold: Path, tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    flags = ("--template", r"Of:\n{text}", "-o", file)
    assert run("learn", "-i", gold, "--gold", "topic", *flags).exit_code == 0
    assert run("classify", "--head", file, "rain", "--show-prompt").stdout == "Of:\nrain\n"
    assert "rows/s in the sample" in run("classify", "--head", file, "a", "b", "--dry-run").stdout


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--labels", "a,b"), "--labels cannot be combined with --head"),
        (("--template", "{text}"), "--template cannot be combined with --head"),
        (("--chat",), "--chat cannot be combined with --head"),
        (("--task", "TASK"), "Give --task or --head, not both."),
    ],
)
def test_flags_of_what_a_head_says_are_refused(
    run: Run, head: Path, tmp_path: Path, flags: tuple[str, ...], told: str
) -> None:
    (tmp_path / "task.toml").write_text("format = 1")
    given = [str(tmp_path / "task.toml") if flag == "TASK" else flag for flag in flags]
    refused = run("classify", "--head", head, *given, "rain")
    assert refused.exit_code == 2
    assert told in refused.output


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["rain,weather"], "two distinct labels are required, found 1 (texts: 1)"),
        (["rain,weather", "wind,weather"], "two distinct labels are required, found 1 (texts: 2)"),
        (["rain,weather", "rain,sport"], "All rows have the same features"),
        (["rain,"], "has no usable rows"),
        ([], "has no usable rows"),
    ],
)
def test_rows_that_teach_nothing_are_told(
    run: Run, tmp_path: Path, lines: list[str], told: str
) -> None:
    file, out = tmp_path / "gold.csv", tmp_path / "head.safetensors"
    file.write_text("\n".join(["text,topic", *lines, ""]))
    done = run("learn", "-i", file, "--gold", "topic", "-o", out)
    assert done.exit_code in (1, 2)
    assert told in " ".join(done.output.split())
    assert not out.exists()


@pytest.mark.parametrize("data", [b"", b"no head", b"\xff" * 100])
def test_a_file_that_is_no_head_is_told_before_the_model_is_loaded(
    run: Run, tmp_path: Path, data: bytes
) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(data)
    done = run("classify", "--head", file, "rain")
    assert done.exit_code == 1
    assert "This is not a head of infercore-learn" in done.output


def test_a_head_of_another_model_is_refused_before_any_row(
    run: Run, head: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.jsonl"
    monkeypatch.setattr(importlib.import_module("core_fake"), "SIGN", -1)
    done = run("classify", "--head", head, "-i", rows, "-o", out)
    assert done.exit_code == 1
    assert "was learned on another model" in done.output
    assert not out.exists() or not out.read_bytes()


def test_what_is_missing_is_named(
    run: Run, head: Path, gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from core_tasks import heads

    monkeypatch.setattr(heads, "GROUP", "core.no-heads")
    for asked in (
        run("learn", "-i", gold, "--gold", "topic", "-o", tmp_path / "x"),
        run("classify", "--head", head, "rain"),
    ):
        assert asked.exit_code == 1
        assert "pip install -r DIST/learn.txt" in asked.output
