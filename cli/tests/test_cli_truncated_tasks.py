"""``--truncate`` with a task, a head, and the commands that make them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

LENGTH = 60  # tokens, which are characters
Run = Callable[..., "Result"]


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label[0]) + 1 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    backend = FakeBackend(labels=likely, name="narrow")
    core.register(backend)
    yield backend
    REGISTRY._registered.pop("narrow")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.csv"
    texts = (f"{n} {'xyz'[n % 2] * (30 + 5 * (n % 9))} end" for n in range(40))
    lines = [f"{text},{('xan', 'yam')[n % 2]}" for n, text in enumerate(texts)]
    file.write_text("text,kind\n" + "\n".join(lines) + "\n")
    return file


@pytest.fixture
def run(infer_cli: InferCli, backend: FakeBackend, rows: Path, tmp_path: Path) -> Run:
    model = write_model(tmp_path / "model", LENGTH)
    return lambda command, *flags: infer_cli(
        command, "-m", model, "--backend", "narrow", "-i", rows, *flags
    )


COMMANDS = {
    "learn": (),
    "calibrate": ("--template", "Text: {text} It is"),
    "tune": ("--template", "Text: {text} It is", "--template", "A much longer one: {text} is"),
}


@pytest.mark.parametrize("side", ["left", "right", "middle"])
@pytest.mark.parametrize("command", COMMANDS)
def test_long_texts_are_cut_for_every_prompt_and_not_skipped(
    run: Run, backend: FakeBackend, tmp_path: Path, command: str, side: str
) -> None:
    out = tmp_path / "made"
    flags = (*COMMANDS[command], "--gold", "kind", "-o", out)
    long = run(command, *flags)
    assert long.exit_code != 0 or " skipped" in long.stderr or "raw: accuracy" in long.stderr
    backend.models.clear()
    done = run(command, *flags, "--truncate", side, "--overwrite")
    assert done.exit_code == 0, done.output
    assert "too long" not in done.stderr
    prompts = [prompt for call in backend.calls for prompt in call.prompts]
    assert max(map(len, prompts)) <= LENGTH
    assert sum(" end" in prompt for prompt in prompts) >= 40 * (side != "right")

    # It is asked as it was made; without the flag some rows are too long.
    made = "--head" if command == "learn" else "--task"
    asked = run("classify", made, out, "--json", "--truncate", side)
    assert asked.exit_code == 0, asked.output
    labels = [json.loads(line)["label"] for line in asked.stdout.splitlines()]
    assert len(labels) == 40
    assert f"--truncate {side}" in done.stderr
    assert run("classify", made, out, "--json").exit_code == 5


def test_several_labels_leave_room_for_the_longest_prompt(
    run: Run, backend: FakeBackend, tmp_path: Path
) -> None:
    import core_tasks

    labels = ("xan", "a label that is longer")
    core_tasks.Task("{text} about {label}?", labels, mode="many").save(tmp_path / "many.toml")
    done = run("classify", "--task", tmp_path / "many.toml", "--json", "--truncate", "right")
    assert done.exit_code == 0, done.output
    assert max(len(prompt) for call in backend.calls for prompt in call.prompts) <= LENGTH


def test_a_long_text_is_cut_and_explained(run: Run) -> None:
    asked = (
        "explain",
        "5",
        "--by",
        "words",
        "--labels",
        "xan,yam",
        "--template",
        "Long text: {text}",
    )
    assert "too long" in run(*asked).stderr
    done = run(*asked, "--truncate", "right")
    assert done.exit_code == 0, done.output
    assert "with all parts" in done.stderr
