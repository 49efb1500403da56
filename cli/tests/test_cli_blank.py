"""Rows whose text is blank: they fail, or are left out, unless ``--allow-blank`` is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

Run = Callable[..., "Result"]
CSV = "title,text\na a,a\n,\n\u00a0,  \nb,\n"
FIT = f"{CSV}b,b\n"
LABELS = ("--labels", "a,b")


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 1 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def run(infer_cli: InferCli, tmp_path: Path) -> Iterator[Run]:
    """A command with a model of core.testing, about rows of this content."""
    core.register(FakeBackend("yes", labels=said, name="plain"))
    model = write_model(tmp_path / "model")

    def ran(command: str, content: str, *flags: str | Path, name: str = "rows.csv") -> Result:
        (tmp_path / name).write_text(content)
        result = infer_cli(
            *(command, "-m", model, "--backend", "plain", "-i", tmp_path / name), *flags
        )
        assert "Traceback" not in result.output
        return result

    yield ran
    REGISTRY._registered.pop("plain")


def failed(result: Result) -> list[bool]:
    """Return for each row of output whether it has an error."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in result.stdout.splitlines()]
    return [row["error"] is not None for row in rows]


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{text} It is", [False, True, True, True]),
        ("{title}: {text}", [False, True, True, False]),  # something is left to ask about
        ("{title} It is", [False, True, True, False]),
    ],
)
@pytest.mark.parametrize("command", ["classify", "generate"])
def test_a_row_of_which_nothing_is_asked_fails(
    run: Run, command: str, template: str, expected: list[bool]
) -> None:
    flags = ("--json", "--template", template, *(LABELS if command == "classify" else ()))
    result = run(command, CSV, *flags)
    assert (result.exit_code, failed(result)) == (5, expected)
    assert "The text of line 3 is blank." in result.stdout
    assert "--allow-blank" in result.stdout
    allowed = run(command, CSV, *flags, "--allow-blank")
    assert (allowed.exit_code, failed(allowed)) == (0, [False] * 4)


def test_a_conversation_is_blank_where_its_last_question_is(run: Run) -> None:
    def line(role: str, content: str) -> str:
        turns = [{"role": "user", "content": "b"}, {"role": role, "content": content}]
        return json.dumps({"messages": turns})

    lines = "\n".join([line("user", " "), line("assistant", ""), line("user", "a")])
    result = run("generate", lines, "--json", "--new-turn", name="rows.jsonl")
    blank = ["is blank" in row for row in result.stdout.splitlines()]
    assert blank == [True, False, False]


def test_requests_of_a_batch_are_taken_as_they_are(run: Run) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": " "}]}
    request = {"custom_id": "1", "url": "/v1/chat/completions", "body": body}
    result = run("generate", json.dumps(request), name="rows.jsonl")
    assert "is blank" not in result.output


def test_an_argument_that_is_blank_fails(infer_cli: InferCli, fake_model: Path) -> None:
    result = infer_cli("classify", "-m", fake_model, *LABELS, "--template", "{text} is", "a", " ")
    assert result.exit_code == 5
    assert "The text of prompt 2 is blank." in result.stderr


def test_a_task_is_not_asked_of_a_blank_text(run: Run, tmp_path: Path) -> None:
    task = tmp_path / "task.toml"
    made = run("calibrate", FIT, *LABELS, "--template", "{text} is", "-o", task)
    assert made.exit_code == 0, made.output
    assert "3 rows skipped: The text of line 3 is blank." in made.stderr
    result = run("classify", CSV, "--task", task, "--json")
    assert failed(result) == [False, True, True, True]
    everything = run(
        *("calibrate", FIT, *LABELS, "--template", "{text} is", "-o", task),
        *("--overwrite", "--allow-blank"),
    )
    assert everything.exit_code == 0, everything.output
    assert "left out" not in everything.stderr
    assert failed(run("classify", CSV, "--task", task, "--json", "--allow-blank")) == [False] * 4


def test_a_job_with_blank_rows_is_another_job(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    flags = (*LABELS, "--template", "{text} is", "-o", out)
    assert run("classify", CSV, *flags).exit_code == 5
    result = run("classify", CSV, *flags, "--allow-blank", "--resume")
    assert result.exit_code == 2
    assert "--allow-blank changed from off to on" in result.stderr


def test_an_item_without_a_question_fails(run: Run) -> None:
    rows = '{"question": "a", "answer": "a"}\n{"question": "  ", "answer": "b"}\n'
    result = run("eval", rows, "--json", name="rows.jsonl")
    assert failed(result) == [False, True]
    assert "The question of the item is blank." in result.stdout
