"""Both estimators, as scikit-learn uses them: on the fake, and on a real model."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import (
    check_estimator,
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_set_params,
)

import core
import core_sklearn
import core_tasks
from core import api
from core.testing import FakeEncoder, FakeModel
from core_sklearn import LabelClassifier, LogProbFeatures
from core_tasks.calibration import CONTENT_FREE

ROOT = Path(__file__).resolve().parents[3]
BIASED = "a a a {text} is"  # of itself it says a three times
TEXTS = [f"{'ab'[n % 2]} {'ab'[n % 2]} {n}" for n in range(40)]
GOLD = ["ab"[n % 2] for n in range(40)]


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [re.findall(r"\w+", prompt).count(label) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


class Counting(FakeModel):
    """Counts the prompts that it is asked."""

    def __init__(self) -> None:
        super().__init__(labels=likely)
        self.asked = 0

    def classify(self, prompts: Any, *config: Any, **options: Any) -> Any:
        self.asked += len(prompts)
        return super().classify(prompts, *config, **options)


@pytest.fixture
def model() -> Counting:
    return Counting()


@pytest.fixture
def real() -> Iterator[str]:
    yield "smollm2-135m-instruct"
    core_sklearn.close_models()


# ------------------------------------------------------------------------ the classifier


@pytest.mark.parametrize("level", ["raw", "L0", "L1"])
def test_a_level_is_a_parameter_and_says_what_a_task_says(model: Counting, level: Any) -> None:
    found = LabelClassifier(model, BIASED, level=level).fit(TEXTS, GOLD)
    task = core_tasks.Task(BIASED, ("a", "b"))
    if level != "raw":
        task = task.calibrate(model, TEXTS, GOLD if level == "L1" else None)
    wanted = [[*(d.probabilities or {}).values()] for d in task.classify(model, TEXTS)]
    np.testing.assert_allclose(found.predict_proba(TEXTS), wanted, atol=1e-12)
    assert [*found.classes_] == ["a", "b"]
    assert [*found.predict(TEXTS)] == [["a", "b"][np.argmax(row)] for row in wanted]
    np.testing.assert_allclose(found.predict_log_proba(TEXTS), np.log(wanted), atol=1e-9)
    assert (found.calibration_ is None) is (level == "raw")


@pytest.mark.parametrize("prior", ["batch", "content-free", "pmi"])
def test_each_prior_is_that_of_a_task(model: Counting, prior: Any) -> None:
    found = LabelClassifier(model, BIASED, level="L0", prior=prior).fit(TEXTS, GOLD)
    texts = TEXTS if prior == "batch" else None
    task = core_tasks.Task(BIASED, ("a", "b")).fit_prior(model, texts, prior)
    wanted = [[*(d.probabilities or {}).values()] for d in task.classify(model, TEXTS[:4])]
    np.testing.assert_allclose(found.predict_proba(TEXTS[:4]), wanted, atol=1e-12)


def test_a_calibrated_one_is_right_where_the_raw_one_is_not(model: Counting) -> None:
    raw = LabelClassifier(model, BIASED).fit(TEXTS, GOLD)
    assert raw.score(TEXTS, GOLD) == 0.5
    assert LabelClassifier(model, BIASED, level="L0").fit(TEXTS, GOLD).score(TEXTS, GOLD) == 1.0


def test_a_head_reads_no_label(model: Counting) -> None:
    gold = [7 if label == "a" else 3 for label in GOLD]
    found = LabelClassifier(model, level="L2").fit(TEXTS, gold)
    assert [*found.classes_] == [3, 7]
    assert found.score(TEXTS, gold) > 0.9
    assert model.asked == 0
    np.testing.assert_allclose(found.predict_proba(TEXTS).sum(axis=1), 1.0)


def test_classes_have_names_for_the_model(model: Counting) -> None:
    gold = [int(label == "b") for label in GOLD]
    found = LabelClassifier(model, "{text}", {0: "a", 1: "b"}).fit(TEXTS, gold)
    assert [*found.predict(TEXTS)] == gold
    named = LabelClassifier(model, "{text}", ["b", "a"]).fit(TEXTS)  # without any y
    assert [*named.classes_] == ["a", "b"]
    assert [*named.predict(TEXTS)] == GOLD
    words = LabelClassifier(model, "{text}", words={"a": ["a", "x"]}).fit(TEXTS, GOLD)
    assert words.score(["x x", "b b"], ["a", "b"]) == 1.0


# ------------------------------------------------------------------------ in scikit-learn


def test_a_grid_asks_each_prompt_once(model: Counting) -> None:
    grid = {"template": ["{text}", BIASED], "level": ["raw", "L0", "L1"]}
    search = GridSearchCV(LabelClassifier(model), grid, cv=4).fit(TEXTS, GOLD)
    assert search.best_score_ == 1.0
    assert model.asked == 2 * (len(TEXTS) + len(CONTENT_FREE) + 2)
    assert search.best_estimator_.model is model


def test_it_is_judged_by_cross_validation_and_stands_in_a_pipeline(model: Counting) -> None:
    scores = cross_val_score(LabelClassifier(model, BIASED, level="L1"), TEXTS, GOLD, cv=4)
    assert scores.mean() == 1.0
    features = make_pipeline(LogProbFeatures(model, BIASED, ("a", "b")), LogisticRegression())
    assert cross_val_score(features, TEXTS, GOLD, cv=4).mean() == 1.0
    assert model.asked == len(TEXTS) + len(CONTENT_FREE) + 2


def test_features_are_the_raw_log_probabilities(model: Counting) -> None:
    found = LogProbFeatures(model, "{text}", ("a", "b", "c")).fit(TEXTS)
    results = model.classify(TEXTS, labels=("a", "b", "c"))
    wanted = [[*(result.logprobs or {}).values()] for result in results]
    np.testing.assert_allclose(found.transform(TEXTS), wanted)
    assert [*found.get_feature_names_out()] == ["a", "b", "c"]
    assert found.transform([]).shape[0] == 0


def test_an_encoder_compares_label_sentences() -> None:
    texts = ["a day of rain", "a day of sun", "rain again", "sun again"]
    names, gold = ("rain", "sun"), ["rain", "sun", "rain", "sun"]
    for sentence in ("This text is about {label}.", "{label} again"):
        encoder = FakeEncoder()
        results = encoder.classify(texts, labels=names, label_sentence=sentence)
        wanted = np.log([[*(result.probabilities or {}).values()] for result in results])
        features = LogProbFeatures(encoder, "{text}", names, label_sentence=sentence).fit(texts)
        np.testing.assert_allclose(features.transform(texts), wanted)
        raw = LabelClassifier(encoder, labels=names, label_sentence=sentence).fit(texts)
        np.testing.assert_allclose(raw.predict_log_proba(texts), wanted)

        fitted = LabelClassifier(
            encoder, labels=names, label_sentence=sentence, level="L0", prior="mean"
        ).fit(texts)
        assert fitted.calibration_ is not None
        assert fitted.calibration_.method == "mean"
        assert fitted.calibration_.key.label_sentence == sentence
        assert [*fitted.predict(texts)] == gold
    with pytest.raises(core.TaskError, match="A pmi prior"):
        LabelClassifier(FakeEncoder(), labels=names, level="L0", prior="pmi").fit(texts)
    assert [*LabelClassifier(FakeEncoder(), level="L2").fit(texts, gold).predict(texts)] == gold


@pytest.mark.parametrize("make", [LabelClassifier, LogProbFeatures])
def test_it_keeps_what_scikit_learn_expects(model: Counting, make: Any) -> None:
    given = make(model, "{text} x", ("a", "b"), label_prefix="")
    copy = clone(given)
    assert copy.get_params() == given.get_params()
    assert copy.model is model
    assert get_tags(given).input_tags.string
    assert not get_tags(given).input_tags.two_d_array
    with pytest.warns(Warning, match="Can't test estimator"):
        check_estimator(make(model, "{text}", ("a", "b")))
    # It skips the others for texts; these need no table of numbers.
    for check in (check_get_params_invariance, check_set_params, check_no_attributes_set_in_init):
        check(make.__name__, make("some model", "{text}", ("a", "b")))


def test_a_path_is_pickled_and_an_object_is_not(model: Counting, tmp_path: Path) -> None:
    given = LabelClassifier("some model", BIASED, ("a", "b"), level="L0")
    assert pickle.loads(pickle.dumps(given)).get_params() == given.get_params()
    with pytest.raises(core.InvalidOptionError, match="a path or a name"):
        pickle.dumps(LabelClassifier(model))


def test_models_of_one_path_are_loaded_once_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []

    def load(path: Any, **options: Any) -> Counting:
        loads.append((path, options))
        return Counting()

    monkeypatch.setattr(api, "load_model", load)
    grid = {"template": ["{text}", BIASED]}
    try:
        GridSearchCV(LabelClassifier("one", level="L0"), grid, cv=4).fit(TEXTS, GOLD)
        assert loads == [("one", {"backend": ""})]
        LabelClassifier("one", backend="x").fit(TEXTS, GOLD).predict(TEXTS)
        LabelClassifier("two").fit(TEXTS, GOLD).predict(TEXTS)
        assert len(api._LOADED) == api.MOST
        LabelClassifier("one").fit(TEXTS, GOLD).predict(TEXTS)
        assert len(loads) == 4
    finally:
        core_sklearn.close_models()
    assert not api._LOADED


# ------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("make", [LabelClassifier, LogProbFeatures])
@pytest.mark.parametrize(
    ("texts", "error", "told"),
    [
        ("text", TypeError, "Wrap a single one in a list"),
        (5, TypeError, "expects a sequence of texts"),
        (["a", None], TypeError, "Text 1 is not a string, but None"),
        (np.array([1.0, np.nan]), TypeError, "Text 0 is not a string"),
        (np.array([["a", "b"]]), ValueError, r"shape \(1, 2\)"),
    ],
)
def test_what_holds_no_texts_is_told(
    model: Counting, make: Any, texts: Any, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        make(model, "{text}", ("a", "b")).fit(texts)


def test_what_cannot_be_fitted_is_told(model: Counting) -> None:
    with pytest.raises(NotFittedError):
        LabelClassifier(model).predict(TEXTS)
    with pytest.raises(NotFittedError):
        LogProbFeatures(model, labels=("a", "b")).transform(TEXTS)
    for level, gold, error, told in (
        ("raw", None, ValueError, "labels is None, too"),
        ("L9", GOLD, core.InvalidOptionError, "level"),
        ("raw", ["a"] * 40, ValueError, "y has 1 class"),
        ("raw", GOLD[:-1], ValueError, "40 texts and 39 classes"),
    ):
        with pytest.raises(error, match=told):
            LabelClassifier(model, level=level).fit(TEXTS, gold)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="y is None"):
        LabelClassifier(model, labels=("a", "b"), level="L1").fit(TEXTS)
    with pytest.raises(ValueError, match="which is not one of"):
        LabelClassifier(model, labels=("a", "c")).fit(TEXTS, GOLD)
    with pytest.raises(core.CalibrationError):
        LabelClassifier(model, labels=("a", "b"), level="L0", prior="batch").fit(TEXTS[:1])
    with pytest.raises(core.EmptyPromptError):
        LabelClassifier(model).fit(TEXTS, GOLD).predict(["a", ""])
    with pytest.raises(core.TaskError, match="must contain"):
        LabelClassifier(model, "no place").fit(TEXTS, GOLD)


# ------------------------------------------------------------------------ a real model


def test_a_real_model_classifies_by_its_name_and_is_pickled_fitted(real: str) -> None:
    lines = (ROOT / "examples" / "headlines.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines[:24]]
    texts, gold = [row["text"] for row in rows], [row["label"] for row in rows]
    found = LabelClassifier(real, "{text} This news is about", level="L0", backend="mlx_cpu")
    found.fit(texts, gold)
    assert found.score(texts, gold) > 0.9
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_allclose(again.predict_proba(texts), found.predict_proba(texts))
    head = LabelClassifier(real, level="L2", backend="mlx_cpu").fit(texts[:16], gold[:16])
    assert pickle.loads(pickle.dumps(head)).score(texts[16:], gold[16:]) > 0.8


def test_a_key_among_the_options_is_masked_and_not_saved() -> None:
    for kind in (LabelClassifier, LogProbFeatures):
        options = {"options": {"api_key": "sk-MARKED"}}
        estimator: Any = kind("http://127.0.0.1:1", options=options)
        for each in (estimator, clone(estimator)):
            assert "sk-MARKED" not in repr(each) + repr(each.get_params()) + each._repr_html_()
            assert each.options["options"]["api_key"].reveal() == "sk-MARKED"
            with pytest.raises(TypeError, match="CORE_REMOTE_API_KEY"):
                pickle.dumps(each)
