"""A row that the model's side cancels is a failed row: nobody here asked for an end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

Run = Callable[..., "Result"]


def error(prompt: str) -> core.CoreError | None:
    return core.GenerationCancelled("the server's word") if "row 3" in prompt else None


@pytest.fixture
def run(infer_cli: InferCli, tmp_path: Path) -> Iterator[Run]:
    """A command with a model that cancels row 3 of 8."""
    rows = tmp_path / "in.txt"
    rows.write_text("".join(f"row {n}\n" for n in range(8)))
    core.register(
        FakeBackend("word", labels=lambda prompt, labels: "x", errors=error, name="scripted")
    )
    model = ("-m", write_model(tmp_path / "scripted"), "--backend", "scripted")

    def call(command: str, *flags: str | Path) -> Result:
        return infer_cli(command, *model, *flags)

    yield call
    REGISTRY._registered.pop("scripted")


@pytest.mark.parametrize("command", ["classify", "generate"])
def test_every_row_is_written(run: Run, command: str, tmp_path: Path) -> None:
    labels = ("--labels", "x,y") if command == "classify" else ()
    rows, out = tmp_path / "in.txt", tmp_path / "out.jsonl"
    shown = run(command, "-i", rows, *labels, "--json")
    written = run(command, "-i", rows, *labels, "-o", out)
    for done, text in ((shown, shown.stdout), (written, out.read_text())):
        assert done.exit_code == 5, done.output
        assert "1 of 8 rows failed." in done.stderr
        answers = [json.loads(line) for line in text.splitlines()]
        assert [number for number, answer in enumerate(answers) if answer.get("error")] == [3]
        assert len(answers) == 8


@pytest.mark.parametrize("command", ["generate", "chat"])
def test_one_answer_fails(run: Run, command: str) -> None:
    done = run(command, "row 3")
    assert done.exit_code == 1
    assert "the server's word" in done.stderr
