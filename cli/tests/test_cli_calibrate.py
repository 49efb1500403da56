"""``calibrate`` on gold labels: what it runs, and its advice if probabilities get worse."""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from core_tasks import load_task

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

Run = Callable[..., "Result"]


def share(prompt: str) -> float:
    """The probability of "a" after a text: its hundredths; by a text that names a label, and else.

    So the model is calibrated, and its prior without a text is wrong.
    """
    if found := re.search(r"(\d\d) is", prompt):
        return int(found[1]) / 100
    return 0.9 if "about a." in prompt else 0.01 if "about b." in prompt else 0.2


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    return dict(zip(labels, (share(prompt), 1 - share(prompt)), strict=True))


@pytest.fixture
def backend() -> Iterator[FakeBackend]:
    known = FakeBackend(labels=likely, name="known")
    core.register(known)
    yield known
    REGISTRY._registered.pop("known")


@pytest.fixture
def run(infer_cli: InferCli, backend: FakeBackend, tmp_path: Path) -> Run:
    model = write_model(tmp_path / "model")

    def ran(*flags: str | Path) -> Result:
        asked = ("--template", "{text} is", "--labels", "a,b", "-o", tmp_path / "task.toml")
        return infer_cli("calibrate", "-m", model, "--backend", "known", *asked, *flags)

    return ran


def rows(tmp_path: Path, power: float, seed: int, count: int = 80) -> Path:
    """Texts whose label is drawn with the model's probability to a power: 1 is calibrated."""
    draw, file = random.Random(seed), tmp_path / "rows.csv"
    lines = []
    for n in range(count):
        hundredths = draw.randrange(5, 95)
        odds = (hundredths / (100 - hundredths)) ** power
        label = "a" if draw.random() * (1 + odds) < odds else "b"
        lines.append(f"text {n} {hundredths:02},{label}")
    file.write_text("text,gold\n" + "\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("gold", [(), ("--gold", "gold")])
@pytest.mark.parametrize("prior", [(), ("--method", "batch")])
def test_each_prompt_runs_once(
    run: Run, backend: FakeBackend, tmp_path: Path, gold: tuple[str, ...], prior: tuple[str, ...]
) -> None:
    done = run("-i", rows(tmp_path, 0.5, 1), *gold, *prior)
    assert done.exit_code == 0, done.output
    prompts = [prompt for call in backend.calls for prompt in call.prompts]
    assert len(prompts) == len({*prompts})
    assert len(prompts) == (80 if prior else 102)  # content-free: 20 neutral texts, two of labels


def test_a_method_that_makes_it_worse_is_told_with_one_that_does_not(
    run: Run, infer_cli: InferCli, tmp_path: Path
) -> None:
    prior = ("--method", "content-free", "--strength", "2")
    done = run("-i", rows(tmp_path, 1.0, 3, 200), "--gold", "gold", *prior, "--limit", "150")
    assert done.exit_code == 0, done.output
    assert "Warning: the probabilities are less calibrated than without" in done.stderr, done.stderr
    offer = next(line for line in done.stderr.splitlines() if line.startswith("Of the methods"))
    [line] = [line for line in done.stderr.splitlines() if line.startswith("infer-cli calibrate ")]
    assert "--limit 150" in line
    again = infer_cli(*shlex.split(line)[1:])
    assert again.exit_code == 0, again.output
    assert "Warning: the probabilities are less" not in again.stderr
    calibration = load_task(tmp_path / "task.toml").calibration
    assert calibration is not None
    assert f"raise it, {calibration.method} is the best: accuracy" in offer


def test_a_model_that_knows_less_than_it_says_is_calibrated_without_a_remark(
    run: Run, tmp_path: Path
) -> None:
    done = run("-i", rows(tmp_path, 0.3, 5, 300), "--gold", "gold", "--method", "temperature")
    assert done.exit_code == 0, done.output
    errors = [float(found) for found in re.findall(r"calibration error (\d\.\d+)", done.stderr)]
    assert errors[1] < errors[0] / 2
    assert "less calibrated" not in done.stderr
