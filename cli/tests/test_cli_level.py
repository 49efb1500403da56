"""L0 is one method: whatever surface asks for it, the same prior is taken off."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import core
import core_tasks
from core_server.queues.fits import FittedTasks
from core_sklearn import LabelClassifier
from core_tasks import load_task
from core_tasks.calibration import CONTENT_FREE, content_free_prior

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

TEMPLATE, LABELS = "b b {text} is", ("a", "b")
TEXTS = [f"{'ab'[n % 2]} " * (1 + n % 4) for n in range(40)]
DEAF = "{text} is"  # see `_Deaf`


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return file


def test_every_surface_takes_the_same_prior_off(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    out, answers = tmp_path / "task.toml", tmp_path / "answers.jsonl"
    flags = ("-m", fake_model, "--backend", "fake", "-i", rows)
    asked = ("--template", TEMPLATE, "--labels", ",".join(LABELS))
    assert infer_cli("calibrate", *flags, *asked, "-o", out).exit_code == 0
    tuned = tmp_path / "tuned.toml"
    done = infer_cli("tune", *flags, *asked, "--level", "L0", "-o", tuned)
    assert done.exit_code == 0, done.output
    assert infer_cli("classify", *flags, "--task", out, "-o", answers).exit_code == 0  # a job

    with core.load_model(fake_model, backend="fake") as model:
        task = core_tasks.Task(TEMPLATE, LABELS).fit_prior(model)
        assert task.calibration is not None
        prior = task.calibration.adjustments[""]
        plain = core_tasks.Task(TEMPLATE, LABELS)
        said = plain.classify(model, CONTENT_FREE)
        assert prior == content_free_prior([[*(d.logprobs or {}).values()] for d in said])

        library = core_tasks.tune(model, [plain], TEXTS, levels=["L0"]).best
        server = asyncio.run(FittedTasks(model).at_level(plain, "content-free"))
        sklearn = LabelClassifier(model, TEMPLATE, LABELS, level="L0").fit(TEXTS)
        assert isinstance(server, core_tasks.Task)
        calibrations = {
            "calibrate": load_task(out).calibration,
            "tune": load_task(tuned).calibration,
            "core_tasks.tune": library.calibration,
            "server": server.calibration,
            "scikit-learn": sklearn.calibration_,
        }
        decisions = task.classify(model, TEXTS)

    for surface, found in calibrations.items():
        assert found is not None, surface
        assert (found.level, found.method) == ("L0", "content-free"), surface
        assert found.adjustments[""].prior == pytest.approx(prior.prior, abs=1e-9), surface
    job = [json.loads(line) for line in answers.read_text().splitlines()]
    for row, decision in zip(job, decisions, strict=True):
        assert (row["label"], row["level"]) == (decision.label, "content-free")
        assert row["probabilities"] == pytest.approx(decision.probabilities)


class _Deaf(core.testing.FakeModel):
    """A model that says the same whatever the text."""

    def __init__(self) -> None:
        super().__init__(labels=lambda _, labels: dict(zip(labels, (0.1, 0.4), strict=False)))


def test_every_surface_stays_raw_where_the_prompt_does_not_hear_its_text() -> None:
    model, plain = _Deaf(), core_tasks.Task(DEAF, LABELS)
    assert plain.fit_prior(model) == plain
    assert asyncio.run(FittedTasks(model).at_level(plain, "content-free")) == plain
    assert LabelClassifier(model, DEAF, LABELS, level="L0").fit(TEXTS).calibration_ is None
    levels: list[Any] = ["raw", "L0"]
    assert {
        trial.level for trial in core_tasks.tune(model, [plain], TEXTS, levels=levels).trials
    } == {"raw"}
    with pytest.raises(core.CalibrationError, match="With no candidate's prompt"):
        core_tasks.tune(model, [plain], TEXTS, levels=["L0"])


@pytest.mark.parametrize(
    ("template", "labels", "method", "said"),
    [
        ("{text} is", "a,z", "content-free", "'a' has 7"),
        ("b " * 12 + "{text} is", "a,b", "batch", "batch loses accuracy"),
        ("b b {text} is", "a,b", "content-free", ""),
    ],
)
def test_calibrate_says_when_a_prior_is_far_from_uniform(
    infer_cli: InferCli,
    fake_model: Path,
    rows: Path,
    tmp_path: Path,
    template: str,
    labels: str,
    method: str,
    said: str,
) -> None:
    flags = (
        "-m",
        fake_model,
        "--backend",
        "fake",
        "-i",
        rows,
        "--method",
        method,
        "--strength",
        "1",
    )
    asked = ("--template", template, "--labels", labels, "-o", tmp_path / "task.toml")
    done = infer_cli("calibrate", *flags, *asked)
    assert done.exit_code == 0, done.output
    assert ("far from uniform" in done.stderr) is bool(said)
    assert said in done.stderr
