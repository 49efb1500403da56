"""`core_tasks.tune`: what is chosen, what is told of it, and what cannot be tuned."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

import core
import core_tasks
from core.testing import FakeModel
from core_tasks.calibration import Level, threshold_for
from core_tasks.folds import folds_of
from core_tasks.tuning.judging import merit, nested, out_of_fold
from core_tasks.tuning.methods import Method, Said, methods_of

LABELS = ("a", "b")
RAW: tuple[Level, ...] = ("raw",)
UNFITTED: tuple[Level, ...] = ("raw", "L0")
FITTED: tuple[Level, ...] = ("L1",)
GOOD, BAD = "{text} good:", "b b b {text} bad:"
TEXTS = [f"{'ab'[n % 2]} {'ab'[n % 2]} {n}" + " a" * (n % 8 == 1) * 3 for n in range(60)]
GOLD = ["ab"[n % 2] for n in range(60)]


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [re.findall(r"\w+", prompt).count(label) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


def model() -> FakeModel:
    return FakeModel(labels=said)


def tasks(*templates: str) -> list[core_tasks.Task]:
    return [core_tasks.Task(template, LABELS) for template in templates or (BAD, GOOD)]


def heard(rows: Any) -> Said:
    """What a candidate says, of rows alone."""
    logs: list[Sequence[float]] = [[math.log(value) for value in row] for row in rows]
    return Said(logs, [[-0.7, -0.7]], [[-0.7, -0.7]], 0.5, 1.0)


# ------------------------------------------------------------------------ the choice


def test_the_best_is_chosen_fitted_and_told() -> None:
    tuning = core_tasks.tune(model(), tasks(), TEXTS, GOLD)
    assert core_tasks.tune(model(), tasks(), TEXTS, GOLD, levels=RAW).best.template == GOOD
    assert (tuning.rows, tuning.left_out) == (60, 0)
    assert len(tuning.trials) == 2 * 10
    accuracies = [trial.accuracy for trial in tuning.trials if trial.accuracy is not None]
    assert accuracies == sorted(accuracies, reverse=True)
    assert tuning.expected is not None
    assert tuning.expected.interval[0] <= tuning.expected.accuracy <= tuning.expected.interval[1]

    # It is a task like any other, of the model that it was tuned on.
    best = tuning.trials[0]
    assert best.method == tuning.best.level
    decisions = tuning.best.classify(model(), TEXTS)
    assert sum(d.label == g for d, g in zip(decisions, GOLD, strict=True)) >= 50
    if tuning.best.calibration is not None:
        assert (tuning.best.calibration.method, tuning.best.calibration.rows) == (best.method, 60)


def test_a_level_that_mends_a_prompt_is_chosen() -> None:
    tuning = core_tasks.tune(model(), tasks(BAD), TEXTS, GOLD)
    by_name = {trial.method: trial for trial in tuning.trials}
    assert (by_name["raw"].accuracy or 1) < (by_name["batch"].accuracy or 0)
    assert tuning.best.level != "raw"


def test_only_the_levels_that_are_asked_for_are_tried() -> None:
    tuning = core_tasks.tune(model(), tasks(BAD), TEXTS, GOLD, levels=UNFITTED)
    assert {trial.method for trial in tuning.trials} == {"raw", "batch", "content-free", "pmi"}
    assert [t.level for t in core_tasks.tune(model(), tasks(BAD), TEXTS, levels=RAW).trials] == [
        "raw"
    ]


def test_a_threshold_is_found_on_texts_that_chose_nothing() -> None:
    tuning = core_tasks.tune(model(), tasks(GOOD), TEXTS, GOLD, error_rate=0.3)
    halves = folds_of(TEXTS, [LABELS.index(label) for label in GOLD], 2)
    some, aside = ([n for n, half in enumerate(halves) if half == own] for own in (0, 1))
    alone = core_tasks.tune(model(), tasks(GOOD), [TEXTS[n] for n in some], [GOLD[n] for n in some])
    assert replace(tuning.best, threshold=None) == alone.best
    assert tuning.rows == len(some)

    decisions = tuning.best.classify(model(), [TEXTS[n] for n in aside])
    wanted = threshold_for(
        [max((decision.probabilities or {}).values()) for decision in decisions],
        [decision.label == GOLD[n] for decision, n in zip(decisions, aside, strict=True)],
        0.3,
    )
    assert wanted is not None
    assert tuning.threshold == wanted
    assert tuning.best.threshold == wanted.value
    assert tuning.to_dict()["threshold"] == asdict(wanted)


def test_no_threshold_is_found_where_rows_are_too_few_or_wrong() -> None:
    calls: list[object] = []
    with pytest.raises(core.CalibrationError, match="requires at least 309 rows without an error"):
        core_tasks.tune(_noting(calls), tasks(GOOD), TEXTS, GOLD, error_rate=0.01)
    assert calls == []
    labels = [*"aabb"] * 15  # right for every second text
    with pytest.raises(core.CalibrationError, match="No threshold keeps"):
        core_tasks.tune(model(), tasks(GOOD), TEXTS, labels, levels=RAW, error_rate=0.3)


def _noting(calls: list[object]) -> FakeModel:
    class Noting(FakeModel):
        def classify(self, prompts: Any, *config: Any, **options: Any) -> Any:
            calls.append(prompts)
            return super().classify(prompts, *config, **options)

    return Noting(labels=said)


def test_the_promise_holds_for_the_best_of_many_useless_candidates() -> None:
    """Twelve templates whose confidence says nothing, with errors just above the wanted rate.

    From the rows that chose among them, more than one promise in twenty would be broken.
    """
    promised, runs = 0, 60
    for seed in range(runs):
        draw = random.Random(seed)
        texts = [f"text {n}" for n in range(120)]
        gold = [draw.choice(LABELS) for _ in texts]
        answers: dict[str, float] = {}
        for number in range(12):
            for text, label in zip(texts, gold, strict=True):
                sure = draw.uniform(0.5, 1)
                right = draw.random() >= 0.2001
                answers[f"{text} {number}:"] = sure if right == (label == "a") else 1 - sure
        useless = FakeModel(
            labels=lambda prompt, labels, known=answers: {
                label: known[prompt] if label == "a" else 1 - known[prompt] for label in labels
            }
        )
        candidates = [core_tasks.Task(f"{{text}} {number}:", LABELS) for number in range(12)]
        try:
            core_tasks.tune(useless, candidates, texts, gold, levels=RAW, error_rate=0.2)
        except core.CalibrationError:
            continue
        promised += 1
    assert promised <= 6  # each of them is broken; 3 are expected at most


def test_without_gold_labels_the_weak_signs_choose() -> None:
    tuning = core_tasks.tune(model(), tasks(), TEXTS)
    assert tuning.expected is None
    assert {trial.level for trial in tuning.trials} == {"raw", "L0"}
    assert all(trial.accuracy is None for trial in tuning.trials)
    assert all(0 <= trial.stability <= 1 for trial in tuning.trials)


@pytest.mark.parametrize("with_gold", [True, False])
def test_neither_the_order_of_rows_nor_that_of_labels_matters(with_gold: bool) -> None:
    order = random.Random(1).sample(range(60), 60)
    gold = GOLD if with_gold else None
    first = core_tasks.tune(model(), tasks(BAD), TEXTS, gold)
    turned = [replace(task, labels=LABELS[::-1], words={}) for task in tasks(BAD)]
    shuffled = [GOLD[n] for n in order] if with_gold else None
    for other in (
        core_tasks.tune(model(), tasks(BAD), [TEXTS[n] for n in order], shuffled),
        core_tasks.tune(model(), turned, TEXTS, gold),
    ):
        for one, same in zip(first.trials, other.trials, strict=True):
            for name, value in one.to_dict().items():
                if name not in ("rows_per_second", "words"):
                    assert same.to_dict()[name] == pytest.approx(value, abs=1e-9), name


def test_each_prompt_is_asked_once() -> None:
    calls: list[str] = []

    class Counting(FakeModel):
        def classify(self, prompts: Any, *config: Any, **options: Any) -> Any:
            calls.extend(prompts)
            return super().classify(prompts, *config, **options)

    core_tasks.tune(Counting(labels=said), tasks(), TEXTS, GOLD, levels=UNFITTED)
    assert len(calls) == 2 * (60 + 20 + 2 + 1)


# ------------------------------------------------------------------------ the figures


def test_figures_are_those_of_numpy() -> None:
    trial = core_tasks.tune(model(), tasks(GOOD), TEXTS, GOLD, levels=RAW).trials[0]
    rows = np.array([[*said(GOOD.format(text=text), LABELS).values()] for text in TEXTS])
    shares, right = rows / rows.sum(1, keepdims=True), np.array([LABELS.index(g) for g in GOLD])
    hits = shares.argmax(1) == right
    assert trial.accuracy == pytest.approx(hits.mean(), abs=1e-9)
    assert trial.nll == pytest.approx(-np.log(shares[range(60), right]).mean(), abs=1e-9)
    assert trial.brier == pytest.approx(((shares - np.eye(2)[right]) ** 2).sum(1).mean(), abs=1e-9)
    ranked = np.sort(shares, axis=1)
    assert trial.margin == pytest.approx((ranked[:, 1] - ranked[:, 0]).mean(), abs=1e-9)
    assert trial.label_mass == pytest.approx(0.5)


def test_a_row_is_judged_by_what_the_others_say() -> None:
    generator = np.random.default_rng(0)
    rows = generator.dirichlet((1, 1), 40)
    gold, candidate = generator.integers(0, 2, 40).tolist(), (heard(rows), Method("batch"))
    folds = folds_of([str(n) for n in range(40)], gold)
    adjusted = out_of_fold(candidate, gold, folds)
    for row in range(40):
        others = rows[np.array(folds) != folds[row]]
        wanted = np.log(rows[row]) - 0.75 * np.log(others.mean(0))
        wanted -= np.log(np.exp(wanted).sum())
        assert adjusted[row] == pytest.approx(wanted, abs=1e-9)


def test_the_best_of_many_useless_candidates_is_not_told_to_be_good() -> None:
    best, merits = [], []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        gold = (np.arange(60) % 2).tolist()
        candidates = [(heard(generator.dirichlet((1, 1), 60)), Method()) for _ in range(12)]
        folds = folds_of([str(n) for n in range(60)], gold)
        naive = [merit(out_of_fold(candidate, gold, folds), gold)[0] for candidate in candidates]
        best.append(max(naive))
        merits.append(merit(nested(candidates, gold, folds), gold)[0])
    assert np.mean(best) > 0.58
    assert abs(np.mean(merits) - 0.5) < 0.03


# ------------------------------------------------------------------------ what cannot be tuned


@pytest.mark.parametrize(
    ("candidates", "texts", "gold", "error", "told"),
    [
        ([], TEXTS, GOLD, core.TaskError, "tasks is empty"),
        (tasks(GOOD, GOOD), TEXTS, GOLD, core.TaskError, "is a duplicate"),
        (
            [*tasks(), core_tasks.Task(GOOD, ("a", "c"))],
            TEXTS,
            GOLD,
            core.TaskError,
            "the same labels for all",
        ),
        (
            [core_tasks.Task("{text} {label}", LABELS, mode="many")],
            TEXTS,
            None,
            core.TaskError,
            "does not support mode=.many.",
        ),
        (tasks(), TEXTS, GOLD[:-1], core.CalibrationError, "60 texts have 59 gold labels"),
        (tasks(), TEXTS, [*GOLD[:-1], "c"], core.CalibrationError, "'c', which is not one"),
        (tasks(), TEXTS, ["a"] * 60, core.CalibrationError, "No text has the gold label 'b'"),
        (tasks(), TEXTS[:1], GOLD[:1], core.CalibrationError, "1 texts are usable"),
        (tasks("{text}"), [""] * 60, GOLD, core.CalibrationError, "0 texts are usable"),
    ],
)
def test_what_cannot_be_tuned_is_told(
    candidates: list[core_tasks.Task],
    texts: list[str],
    gold: Any,
    error: type[Exception],
    told: str,
) -> None:
    with pytest.raises(error, match=told):
        core_tasks.tune(model(), candidates, texts, gold)


def test_gold_labels_are_needed_for_what_is_fitted_on_them() -> None:
    with pytest.raises(core.CalibrationError, match="L1 requires gold labels"):
        core_tasks.tune(model(), tasks(), TEXTS, levels=FITTED)
    with pytest.raises(core.CalibrationError, match="An error rate requires gold labels"):
        core_tasks.tune(model(), tasks(), TEXTS, error_rate=0.1)
    assert len(methods_of(FITTED, True)) == 6


def test_texts_that_cannot_be_asked_are_left_out_of_all_candidates() -> None:
    tuning = core_tasks.tune(model(), tasks("{text}", BAD), [*TEXTS, ""], [*GOLD, "a"], levels=RAW)
    assert (tuning.rows, tuning.left_out) == (60, 1)
    broken = FakeModel(labels=said, errors={TEXTS[3]: core.RequestError("No.")})
    with pytest.raises(core.RequestError, match="No"):
        core_tasks.tune(broken, tasks("{text}"), TEXTS, GOLD)


def test_the_table_is_json_and_html() -> None:
    tuning = core_tasks.tune(model(), tasks(), TEXTS, GOLD, levels=RAW)
    content = json.loads(json.dumps(tuning.to_dict()))
    assert content["trials"][0]["method"] == tuning.trials[0].method
    assert "expected" in content
    assert "good:" in tuning._repr_html_()
