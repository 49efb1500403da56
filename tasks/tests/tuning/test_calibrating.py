"""`Task.calibrate`: a prior and a fit to gold labels, with each prompt run once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from core.errors import CalibrationError
from core.testing import FakeModel
from core_tasks import Task
from core_tasks.calibration import CONTENT_FREE, fit_strength

TEXTS = [f"{'a ' * (1 + n % 4)}{'b ' * (n % 3)}{n}" for n in range(40)]
GOLD = ["ab"[n % 3 == 2] for n in range(40)]
TASK = Task("b b {text} is", ("a", "b"))


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    counts = [prompt.count(label) + 1 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def adjustment(task: Task) -> Any:
    assert task.calibration is not None
    return task.calibration.adjustments[""]


@pytest.mark.parametrize("prior", ["content-free", "batch", "mean", "pmi"])
@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_each_prompt_runs_once_and_a_given_strength_is_kept(prior: Any, method: Any) -> None:
    model = FakeModel(labels=likely)
    fitted = TASK.calibrate(model, TEXTS, GOLD, prior=prior, method=method, strength=0.5)
    prompts = [prompt for call in model.calls for prompt in call.prompts]
    assert len(prompts) == len({*prompts})
    texts = TEXTS if prior in ("batch", "mean") else None
    apart = TASK.fit_prior(model, texts, prior, strength=0.5).fit(model, TEXTS, GOLD, method)
    assert fitted == apart
    assert fitted.level.endswith(method)


def test_without_gold_labels_it_is_the_prior() -> None:
    model = FakeModel(labels=likely)
    assert TASK.calibrate(model) == TASK.fit_prior(model)
    assert TASK.calibrate(model, TEXTS, prior="batch") == TASK.fit_prior(model, TEXTS, "batch")


def test_the_strength_is_fitted_with_the_temperature_and_a_prior_that_is_there_is_kept() -> None:
    model = FakeModel(labels=likely)
    before = TASK.fit_prior(model, TEXTS, "batch")
    rows = [[*(each.logprobs or {}).values()] for each in TASK.classify(model, TEXTS)]
    expected = fit_strength(rows, [*map("ab".index, GOLD)], adjustment(before))
    assert adjustment(TASK.calibrate(model, TEXTS, GOLD, prior="batch")) == expected
    model.calls.clear()
    after = before.calibrate(model, TEXTS, GOLD)
    assert adjustment(after) == expected
    assert after.calibration is not None
    assert (after.calibration.method, after.calibration.rows) == ("batch+temperature", 40)
    prompts = [prompt for call in model.calls for prompt in call.prompts]
    assert not any(TASK.prompts([text])[0] in prompts for text in CONTENT_FREE)


def test_each_label_of_several_is_a_question() -> None:
    words = {"yes": ("a",), "no": ("b",)}
    task = Task("{text} b {label}", ("x", "y"), words=words, mode="many")
    gold = [[label for place, label in enumerate("xy") if n >> place & 1] for n in range(40)]
    model = FakeModel(labels=likely)
    fitted = task.calibrate(model, TEXTS, gold, prior="batch", strength=0.75)
    assert fitted == task.fit_prior(model, TEXTS, "batch").fit(model, TEXTS, gold)


def test_rows_that_cannot_be_fitted_are_refused() -> None:
    model = FakeModel(labels=likely)
    with pytest.raises(CalibrationError, match="40 texts cannot be fitted to 39 gold labels"):
        TASK.calibrate(model, TEXTS, GOLD[1:])
    with pytest.raises(CalibrationError, match="gold label 'c'"):
        TASK.calibrate(model, TEXTS, ["c", *GOLD[1:]])
    with pytest.raises(CalibrationError, match="requires at least 2 rows"):
        TASK.calibrate(model, TEXTS[:1], prior="batch")
    skipped = TASK.calibrate(model, [*TEXTS, "x" * 100_000], [*GOLD, "a"])
    assert skipped == TASK.calibrate(model, TEXTS, GOLD)
