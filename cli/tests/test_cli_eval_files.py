"""``eval --task`` and ``--head``: judged by gold labels, as ``classify --gold`` judges."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core_tasks

if TYPE_CHECKING:
    from click.testing import Result

Run = Callable[..., "Result"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.csv"
    lines = [f"{'ab'[n % 2]} {n},{'ab'[n % 3 == 0]},x{n}" for n in range(30)]
    file.write_text("\n".join(["text,label,other", *lines, ""]))
    return file


@pytest.fixture
def task(tmp_path: Path) -> Path:
    core_tasks.Task("{text} is", ("a", "b")).save(tmp_path / "task.toml")
    return tmp_path / "task.toml"


def test_a_task_is_judged_as_classify_judges_it(
    run: Run, rows: Path, task: Path, tmp_path: Path
) -> None:
    report, other = tmp_path / "report.json", tmp_path / "other.json"
    judged = run("eval", "-i", rows, "--task", task, "--report", report)
    assert judged.exit_code == 0, judged.output
    alone = run("classify", "-i", rows, "--task", task, "--gold", "label", "--report", other)
    assert judged.stdout == alone.stdout
    metrics, same = (json.loads(file.read_text()) for file in (report, other))
    assert metrics["gold"] == same["gold"]
    assert metrics["gold"]["accuracy"] is not None
    assert metrics["command"] == "eval"


def test_a_head_is_judged(run: Run, rows: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.safetensors"
    learned = run("learn", "-i", rows, "--gold", "label", "-o", head)
    assert learned.exit_code == 0, learned.output
    judged = run("eval", "-i", rows, "--head", head, "--gold", "label")
    assert judged.exit_code == 0, judged.output
    assert "correct: " in judged.stderr


def test_the_accuracy_decides_the_exit_code(run: Run, rows: Path, task: Path) -> None:
    assert run("eval", "-i", rows, "--task", task, "--fail-under", 0).exit_code == 0
    failed = run("eval", "-i", rows, "--task", task, "--fail-under", 1)
    assert failed.exit_code == 1
    assert "is below --fail-under 100 %" in failed.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--letters",), "--letters cannot be combined with --task"),
        (("--template", "{question}"), "--template cannot be combined with --task"),
        (("--temperature", "1"), "--temperature cannot be combined with --task"),
        (("--gold", "lable"), "Did you mean --gold label?"),
        (("--head", "{head}"), "Give --task or --head, not both"),
    ],
)
def test_flags_of_items_are_refused(
    run: Run, rows: Path, task: Path, words: Sequence[str], message: str
) -> None:
    given = [str(task) if word == "{head}" else word for word in words]
    done = run("eval", "-i", rows, "--task", task, *given)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_file_is_needed_and_gold_labels(run: Run, task: Path, tmp_path: Path) -> None:
    assert "pass -i FILE" in run("eval", "--task", task).stderr
    file = tmp_path / "plain.csv"
    file.write_text("text,colour\na,red\n")
    assert "has no gold label in answer, label" in run("eval", "-i", file, "--task", task).stderr
