"""Tasks on a model of label sentences: scores without log-probabilities, and the label sentence."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import core
import core_tasks
from core.errors import CalibrationError, TaskError, UnsupportedOptionError
from core.testing import FakeEncoder, FakeModel
from core_tasks.evaluation.items import Item
from core_tasks.evaluation.prompts import Prompting, fingerprint
from core_tasks.files import from_toml, to_toml
from core_tasks.fitting import prior_of
from core_tasks.tuning.methods import methods_of

LABELS = ("money", "games")
TASK = core_tasks.Task("{text}", LABELS)
SHARES = {
    "a bank": {"money": 0.7, "games": 0.3},
    "a bet": {"money": 0.6, "games": 0.4},
    "a match": {"money": 0.55, "games": 0.45},
    "a goal": {"money": 0.4, "games": 0.6},
}
RIGHT = {"a bank": "money", "a bet": "money", "a match": "games", "a goal": "games"}


@pytest.fixture
def model() -> FakeEncoder:
    return FakeEncoder(SHARES)


class Wordless(core.TextModelBase):
    """A model of label sentences without a tokenizer."""

    model_type = "wordless"
    info = FakeEncoder().info

    def __init__(self) -> None:
        super().__init__("wordless")
        self.encoder = FakeEncoder(lambda text, labels: dict.fromkeys(labels, 0.25))

    def declared(self) -> frozenset[core.Capability]:
        return self.encoder.declared() - {core.Capability.TOKENIZING}

    def classify(self, *call: Any, **options: Any) -> list[core.ClassifyResult]:
        return self.encoder.classify(*call, **options)


def test_a_decision_has_probabilities_and_nothing_that_a_next_token_has(model: FakeEncoder) -> None:
    for decisions in (TASK.classify(model, [*SHARES]), [*TASK.classify_iter(model, [*SHARES])]):
        for decision, shares in zip(decisions, SHARES.values(), strict=True):
            assert decision.probabilities == pytest.approx(shares)
            assert (decision.logprobs, decision.label_mass, decision.token) == (None, None, None)
            assert decision.scores == pytest.approx({k: math.log(p) for k, p in shares.items()})
            assert decision.label == max(shares, key=lambda label: shares[label])
            json.dumps(decision.to_dict(), allow_nan=False)
    plain = FakeModel(labels=SHARES).classify(["a bank"], labels=LABELS)[0]
    [language] = TASK.classify(FakeModel(labels=SHARES), ["a bank"])
    assert language.scores == language.logprobs == plain.logprobs


def test_the_label_sentence_reaches_the_model() -> None:
    model = FakeEncoder()
    task = replace(TASK, label_sentence="He wins {label} again")
    [first] = task.classify(model, ["wins games"])
    [second] = TASK.classify(model, ["wins games"])
    assert first.label == second.label == "games"
    assert first.probabilities != second.probabilities
    assert [call.config.label_sentence for call in model.calls] == [
        "He wins {label} again",
        "This text is about {label}.",
    ]


def test_a_language_model_refuses_a_label_sentence_and_an_encoder_a_prefix() -> None:
    with pytest.raises(UnsupportedOptionError, match="label_sentence"):
        replace(TASK, label_sentence="On {label}.").classify(FakeModel(labels=SHARES), ["a bank"])
    with pytest.raises(UnsupportedOptionError, match="label_prefix"):
        replace(TASK, label_prefix="").classify(FakeEncoder(SHARES), ["a bank"])
    with pytest.raises(core.InvalidOptionError, match="label_sentence"):
        replace(TASK, label_sentence="On money.")


def test_the_words_of_a_label_are_sentences_of_their_own_and_summed() -> None:
    """Though one is a prefix of another, both count; and no tokenizer is needed for that."""
    words = {"money": ("bank", "banks"), "games": ("goal",)}
    task = core_tasks.Task("{text}", LABELS, words=words)
    model = FakeEncoder({"t": {"bank": 0.25, "banks": 0.25, "goal": 0.5}})
    assert task.classify(model, ["t"])[0].probabilities == pytest.approx(dict.fromkeys(LABELS, 0.5))
    [decision] = task.classify(Wordless(), ["t"])
    assert decision.probabilities == pytest.approx({"money": 2 / 3, "games": 1 / 3})


def test_many_labels_are_refused_before_any_work(model: FakeEncoder) -> None:
    task = core_tasks.Task("{text} Is it about {label}?", LABELS, mode="many")
    for call in (task.classify, task.classify_iter):
        with pytest.raises(TaskError, match=r"label sentences\. Use mode='one'"):
            call(model, ["a bank"])
    assert not model.calls


def test_levels_have_a_value() -> None:
    task = core_tasks.Task("{text}", ("1", "2"), mode="levels", label_sentence="{label} stars")
    [decision] = task.classify(FakeEncoder({"t": {"1": 0.25, "2": 0.75}}), ["t"])
    assert decision.value == pytest.approx(1.75)


def test_a_backend_that_returns_neither_is_refused() -> None:
    class Bare(FakeModel):
        def classify(self, prompts: Any, *config: Any, **options: Any) -> Any:
            return [core.ClassifyResult(label="money") for _ in prompts]

    with pytest.raises(TaskError, match="no probabilities of labels"):
        TASK.classify(Bare(labels=SHARES), ["a"])


# --------------------------------------------------------------------------- calibration


def test_the_mean_of_the_log_scores_is_subtracted(model: FakeEncoder) -> None:
    texts = [*SHARES]
    assert [d.label for d in TASK.classify(model, texts)] != [*RIGHT.values()]
    task = TASK.fit_prior(model, texts, "mean")
    decisions = task.classify(model, texts)
    assert [d.label for d in decisions] == [*RIGHT.values()]

    logs = np.log([[*shares.values()] for shares in SHARES.values()])
    wanted = np.exp(logs - logs.mean(axis=0))
    wanted /= wanted.sum(axis=1, keepdims=True)
    for decision, shares in zip(decisions, wanted, strict=True):
        assert [*(decision.probabilities or {}).values()] == pytest.approx(shares)
        assert (decision.level, decision.logprobs) == ("mean", None)
    half = TASK.fit_prior(model, texts, "mean", strength=0.5).classify(model, texts)
    assert half[0].probabilities != decisions[0].probabilities


def test_a_constant_of_each_row_does_not_matter_to_the_mean() -> None:
    """So the mean of a log-softmax is that of the model's scores, up to a constant."""
    scores = np.random.default_rng(0).normal(size=(6, 3)) * 5
    one = prior_of(scores.tolist(), "mean")
    other = prior_of((scores + np.arange(6)[:, None]).tolist(), "mean")
    assert one.prior == pytest.approx(other.prior)
    assert np.diff(one.prior) == pytest.approx(np.diff(scores.mean(axis=0)))


def test_a_mean_needs_texts_and_a_probability_of_every_label(model: FakeEncoder) -> None:
    with pytest.raises(CalibrationError, match="A mean prior requires texts"):
        TASK.fit_prior(model, method="mean")
    with pytest.raises(CalibrationError, match="mean prior"):
        TASK.fit_prior(model, ["a bank"], "mean")
    certain = FakeEncoder(lambda text, labels: labels[0])
    with pytest.raises(CalibrationError, match=r"Label 1 \(from 0\) has probability 0 in a row"):
        TASK.fit_prior(certain, ["a", "b"], "mean")


def test_a_mean_prior_serves_language_models_too() -> None:
    model = FakeModel(labels=SHARES)
    task = TASK.fit_prior(model, [*SHARES], "mean")
    assert [d.label for d in task.classify(model, [*SHARES])] == [*RIGHT.values()]


def test_neutral_texts_have_a_prior_and_a_prompt_without_text_has_none() -> None:
    model = FakeEncoder()
    free = TASK.fit_prior(model)
    assert free.calibration is not None
    assert free.calibration.method == "content-free"
    for domain in (None, "This news is about"):
        with pytest.raises(TaskError, match="A pmi prior is what follows a prompt"):
            TASK.fit_prior(model, method="pmi", domain=domain)


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_gold_labels_fit_the_probabilities(model: FakeEncoder, method: Any) -> None:
    texts = [*SHARES] * 3
    gold = [*RIGHT.values()] * 3
    task = TASK.fit_prior(model, texts, "mean").fit(model, texts, gold, method)
    assert task.calibration is not None
    assert task.calibration.method == f"mean+{method}"
    decisions = task.classify(model, texts)
    assert [d.label for d in decisions] == gold
    assert {d.level for d in decisions} == {f"mean+{method}"}


def test_a_calibration_serves_its_own_sentence_alone(model: FakeEncoder) -> None:
    task = TASK.fit_prior(model, [*SHARES], "mean")
    other = replace(task, label_sentence="On {label}.")
    with pytest.raises(CalibrationError, match="fitted with label_sentence 'This text is"):
        other.classify(model, ["a bank"])


def test_a_file_has_the_sentence_where_it_is_not_the_default(model: FakeEncoder) -> None:
    plain = TASK.fit_prior(model, [*SHARES], "mean")
    assert "label_sentence" not in to_toml(plain)
    assert from_toml(to_toml(plain)) == plain
    task = replace(TASK, label_sentence="On {label}.").fit_prior(model, [*SHARES], "mean")
    assert to_toml(task).count('label_sentence = "On {label}."') == 2  # also in the calibration
    assert from_toml(to_toml(task)) == task
    head = 'format = 1\ntemplate = "{text}"\nlabels = ["a", "b"]\n'
    assert from_toml(head + 'label_sentence = "On {label}."').label_sentence == "On {label}."
    with pytest.raises(TaskError, match="label_sentence is 3, not a text"):
        from_toml(head + "label_sentence = 3")
    with pytest.raises(TaskError, match="not valid: label_sentence"):
        from_toml(head + 'label_sentence = "On"')


# --------------------------------------------------------------------------- tuning, evaluation

TEXTS = [f"{'a day of' if n % 2 else 'this is on'} {LABELS[n % 2]} {n}" for n in range(40)]
GOLD = [LABELS[n % 2] for n in range(40)]


def candidates(*sentences: str) -> list[core_tasks.Task]:
    return [replace(TASK, label_sentence=sentence) for sentence in sentences]


def test_tune_chooses_a_label_sentence() -> None:
    blind = "this is on, a day of {label}" + " this is on, a day of" * 9
    tuning = core_tasks.tune(FakeEncoder(), candidates(blind, "{label}"), TEXTS, GOLD)
    assert {trial.method for trial in tuning.trials} == {
        *("raw", "mean", "batch", "content-free", "temperature", "isotonic"),
        *("mean+temperature", "mean+isotonic", "batch+temperature", "batch+isotonic"),
    }
    assert tuning.best.label_sentence in ("{label}", blind)
    assert all(trial.label_mass is None for trial in tuning.trials)
    record = json.loads(json.dumps(tuning.to_dict()))["trials"][0]
    assert record["label_sentence"] == tuning.trials[0].task.label_sentence
    assert (record["label_mass"], record["template"]) == (None, "{text}")
    assert "{label}</td>" in tuning._repr_html_()
    decisions = tuning.best.classify(FakeEncoder(), TEXTS)
    assert [d.label for d in decisions] == GOLD


def test_each_candidate_has_its_best_trial() -> None:
    tuning = core_tasks.tune(FakeEncoder(), candidates("{label}", "On {label}."), TEXTS, GOLD)
    best = tuning.by_candidate
    assert len(tuning.trials) > len(best) == 2
    assert best[0] == tuning.trials[0]
    for trial in best:
        assert trial == next(other for other in tuning.trials if other.task == trial.task)


def test_the_name_of_a_candidate() -> None:
    [plain] = core_tasks.tune(
        FakeEncoder(), candidates("{label}"), TEXTS, GOLD, levels=["raw"]
    ).trials
    assert plain.candidate == "{label}"
    queries = [replace(TASK, template="query: {text}", label_sentence="{label}")]
    [trial] = core_tasks.tune(FakeEncoder(), queries, TEXTS, GOLD, levels=["raw"]).trials
    assert trial.candidate == "query: {text} | {label}"
    language = FakeModel(labels=lambda prompt, labels: dict.fromkeys(labels, 0.5))
    [other] = core_tasks.tune(language, [TASK], TEXTS, GOLD, levels=["raw"]).trials
    assert (other.candidate, other.label_sentence) == ("{text}", None)


def test_without_gold_labels_the_mean_is_the_prior_that_is_tried() -> None:
    tuning = core_tasks.tune(FakeEncoder(), candidates("{label}"), TEXTS)
    assert {trial.method for trial in tuning.trials} == {"raw", "mean"}
    assert len(methods_of(["L0"], True)) == len(methods_of(["L0"], True, sentences=True)) == 3


def test_choices_are_evaluated_by_their_sentences() -> None:
    model = FakeEncoder()
    golds = {"a day of money": "money", "a day of games": "games", "games": "money"}
    items = [Item(question, (gold,), LABELS) for question, gold in golds.items()]
    prompting = Prompting("{question}", label_sentence="{label}")
    evaluation = core_tasks.evaluate(model, items, prompting=prompting)
    assert [result.right for result in evaluation.items] == [True, True, False]
    assert {call.config.label_sentence for call in model.calls} == {"{label}"}
    record = evaluation.items[0].to_dict()
    assert (record["logprobs"], record["right_normalised"]) == (None, None)
    assert sum(record["probabilities"].values()) == pytest.approx(1)

    assert fingerprint(prompting)["label_sentence"] == "{label}"
    assert "label_sentence" not in fingerprint(Prompting("{question}"))
    with pytest.raises(core.UnsupportedOperationError):
        core_tasks.evaluate(model, items, metric="exact", prompting=prompting)
