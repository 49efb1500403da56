"""Tasks on the fake, whose answers are written down: levels, words, modes, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
import core_tasks
from core.errors import (
    CalibrationError,
    EmptyPromptError,
    GenerationCancelled,
    InvalidOptionError,
    LabelError,
    OutOfMemoryError,
    TaskError,
)
from core.kit.labels import choice_confidence, score_confidence
from core.testing import FakeModel
from core_tasks.calibration import CONTENT_FREE, Adjustment

LABELS = ("finance", "sports")
TASK = core_tasks.Task("{text} This is about", LABELS)


def says(answers: Mapping[str, Mapping[str, float]], **options: Any) -> FakeModel:
    """A model with probabilities by text, whatever the template has around it."""

    def labels(prompt: str, _: Sequence[str]) -> Mapping[str, float]:
        return next(scores for text, scores in answers.items() if text in prompt)

    return FakeModel(labels=labels, **options)


BIASED = {
    "banks": {"finance": 0.20, "sports": 0.30},
    "goals": {"finance": 0.02, "sports": 0.60},
    "rates": {"finance": 0.24, "sports": 0.30},
    "match": {"finance": 0.03, "sports": 0.50},
}


@pytest.fixture
def model() -> FakeModel:
    return says(BIASED)


def adjusted(task: core_tasks.Task) -> Adjustment:
    assert task.calibration
    [adjustment] = task.calibration.adjustments.values()
    return adjustment


def test_raw_is_plain_classify(model: FakeModel) -> None:
    texts = [*BIASED]
    plain = model.classify([f"{text} This is about" for text in texts], labels=LABELS)
    for decision, result in zip(TASK.classify(model, texts), plain, strict=True):
        assert (decision.label, decision.level) == (result.label, "raw")
        assert decision.labels == (result.label,)
        assert decision.probabilities == result.probabilities
        assert decision.logprobs == result.logprobs
        assert (decision.margin, decision.label_mass) == (result.margin, result.label_mass)
        assert result.probabilities
        assert decision.confidence == choice_confidence([*result.probabilities.values()])
        json.dumps(decision.to_dict(), allow_nan=False)


def test_a_batch_prior_mends_a_prompt_that_prefers_a_label(model: FakeModel) -> None:
    texts = [*BIASED]
    assert {item.label for item in TASK.classify(model, texts)} == {"sports"}
    task = TASK.fit_prior(model, texts, "batch")
    assert TASK.level == "raw"  # a task is a value
    assert task.level == "batch"

    decisions = task.classify(model, texts)
    assert [item.label for item in decisions] == ["finance", "sports", "finance", "sports"]
    rows = np.array([[*item.values()] for item in BIASED.values()])
    shares = rows / rows.sum(axis=1, keepdims=True)
    expected = shares / shares.mean(axis=0) ** 0.75
    expected /= expected.sum(axis=1, keepdims=True)
    for decision, row, share in zip(decisions, rows, expected, strict=True):
        assert decision.level == "batch"
        assert [*(decision.probabilities or {}).values()] == pytest.approx(share, abs=1e-9)
        assert [*(decision.logprobs or {}).values()] == pytest.approx(np.log(row))  # raw ones stay


def test_an_answer_depends_on_no_neighbour(model: FakeModel) -> None:
    task = TASK.fit_prior(model, [*BIASED], "batch")
    together = task.classify(model, [*BIASED])
    assert [task.classify(model, [text])[0] for text in BIASED] == together
    assert [*task.classify_iter(model, iter(BIASED))] == together
    assert [*reversed(task.classify(model, [*reversed(BIASED)]))] == together


def test_content_free_texts_and_the_domain_prompt() -> None:
    answers = {
        "N/A": {"finance": 0.1, "sports": 0.4},
        "It is about finance.": {"finance": 0.3, "sports": 0.4},
        CONTENT_FREE[0]: {"finance": 0.3, "sports": 0.6},
        "": {"finance": 0.1, "sports": 0.3},
    }
    model = says(answers)
    free = TASK.fit_prior(model)
    assert free == TASK.fit_prior(model, method="content-free", strength=0.6)
    assert [
        prompt.partition(" This")[0] for call in model.calls[:1] for prompt in call.prompts
    ] == [
        *CONTENT_FREE,
        "It is about finance.",
        "It is about sports.",
    ]
    prior = adjusted(free)
    mean = (np.array([1 / 3, 2 / 3]) + 19 * np.array([0.25, 0.75])) / 20
    assert prior.prior == pytest.approx(0.6 * np.log(mean), abs=1e-9)
    assert free.calibration is not None
    assert (free.calibration.method, free.calibration.rows) == ("content-free", 20)

    model.calls.clear()
    pmi = TASK.fit_prior(model, method="pmi")
    assert model.calls[0].prompts == ("This is about",)
    prior = adjusted(pmi)
    assert prior.prior == pytest.approx(np.log([0.25, 0.75]), abs=1e-9)
    other = TASK.fit_prior(model, method="pmi", domain="N/A", strength=0.5)
    prior = adjusted(other)
    assert prior.prior == pytest.approx(0.5 * np.log([0.2, 0.8]), abs=1e-9)
    with pytest.raises(TaskError, match=r"ends with \{text\}"):
        core_tasks.Task("About {text}", LABELS).fit_prior(model, method="pmi")


def test_a_prompt_that_does_not_hear_its_text_keeps_what_it_says() -> None:
    """The prior would turn the answers about, and not for the text."""
    deaf = says({"": {"finance": 0.1, "sports": 0.4}})
    task = TASK.fit_prior(deaf)
    assert (task.level, task.calibration) == ("raw", None)
    assert task.classify(deaf, ["A"]) == TASK.classify(deaf, ["A"])

    # Where labels have other words, it is these that are named; each label asked for names none.
    words = {"finance": ("money",), "sports": ("games",)}
    replace(TASK, words=words).fit_prior(deaf)
    assert "It is about games. This is about" in deaf.calls[-1].prompts
    many = core_tasks.Task("{text} {label}?", LABELS, mode="many").fit_prior(
        FakeModel(labels=lambda _, labels: dict.fromkeys(labels, 0.1))
    )
    assert many.level == "content-free"


def test_gold_labels_make_level_one_on_top_of_the_prior(model: FakeModel) -> None:
    texts, gold = [*BIASED], ["finance", "sports", "sports", "sports"]
    task = TASK.fit_prior(model, texts, "batch").fit(model, texts, gold)
    assert task.calibration
    assert (task.level, task.calibration.level) == ("batch+temperature", "L1")
    assert task.calibration.adjustments[""].prior
    assert task.calibration.rows == 4
    # A second fit replaces the first, and keeps the prior.
    assert task.fit(model, texts, gold) == task
    ladder = task.fit(model, texts, gold, "isotonic")
    assert ladder.calibration
    assert ladder.calibration.method == "batch+isotonic"
    assert ladder.calibration.adjustments[""].temperature == 1.0
    for fitted_task in (task, ladder):
        for decision in fitted_task.classify(model, texts):
            assert decision.level == fitted_task.level
            assert sum((decision.probabilities or {}).values()) == pytest.approx(1, abs=1e-12)
    alone = TASK.fit(model, texts, gold).calibration
    assert alone
    assert (alone.method, alone.adjustments[""].prior) == ("temperature", ())


def test_the_order_of_labels_changes_nothing(model: FakeModel) -> None:
    texts, gold = [*BIASED], ["finance", "sports", "sports", "sports"]
    turned = core_tasks.Task(TASK.template, LABELS[::-1])
    for fitted, other in (
        (TASK.fit_prior(model, texts, "batch"), turned.fit_prior(model, texts, "batch")),
        (TASK.fit(model, texts, gold), turned.fit(model, texts, gold)),
    ):
        expected = fitted.classify(model, texts)
        for variant in (other, replace(turned, calibration=fitted.calibration)):
            for a, b in zip(expected, variant.classify(model, texts), strict=True):
                assert a.label == b.label
                assert a.probabilities == pytest.approx(b.probabilities, abs=1e-12)
    prior = replace(turned, calibration=TASK.fit_prior(model, texts, "batch").calibration)
    ones = prior.fit(model, texts, gold).classify(model, texts)
    others = TASK.fit_prior(model, texts, "batch").fit(model, texts, gold).classify(model, texts)
    for a, b in zip(ones, others, strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-9)


def test_a_calibration_serves_its_own_task_alone(model: FakeModel) -> None:
    task = TASK.fit_prior(model, [*BIASED], "batch")
    others = {
        "model": (task, says(BIASED, context_length=99)),
        "template": (replace(task, template="{text} This says"), model),
        "labels": (replace(task, labels=("finance", "sports", "law"), words={}), model),
        "words": (replace(task, words={"finance": ("money",)}), model),
        "label_prefix": (replace(task, label_prefix=""), model),
        "label_sentence": (replace(task, label_sentence="On {label}."), model),
    }
    for name, (foreign, called) in others.items():
        called.calls.clear()
        for call in (foreign.classify, foreign.classify_iter):
            with pytest.raises(CalibrationError, match=f"fitted with {name}"):
                call(called, ["banks"])
        assert not called.calls  # before any work


# --------------------------------------------------------------------------- words

WORDS = {"finance": ("finance", "money"), "sports": ("sports", "sport", "games")}


def test_the_words_of_a_label_are_summed_and_none_counts_twice() -> None:
    answer = {"finance": 0.1, "money": 0.2, "sports": 0.125, "sport": 0.25, "games": 0.0625}
    task = core_tasks.Task("{text} This is about", LABELS, words=WORDS)
    [decision] = task.classify(says({"": answer}), ["any"])
    # "sports" goes on from "sport" in tokens, so it is in its share.
    sums = {"finance": 0.3, "sports": 0.3125}
    assert decision.logprobs == pytest.approx({k: math.log(v) for k, v in sums.items()})
    assert decision.probabilities == pytest.approx({k: v / 0.6125 for k, v in sums.items()})
    assert decision.label_mass == pytest.approx(0.6125)
    assert decision.label == "sports"


@given(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.sets(st.text("xyz", min_size=1, max_size=4), min_size=1, max_size=5),
        min_size=2,
    )
)
def test_the_sum_is_that_of_all_texts_that_go_on_so(found: dict[str, set[str]]) -> None:
    """In a model that writes x, y and z evenly, against all texts of four letters."""
    words = {name: tuple(sorted(f"{name}{word}" for word in each)) for name, each in found.items()}

    def labels(_: str, names: Sequence[str]) -> dict[str, float]:
        return {name: (1 / 3) ** len(name) for name in names}

    task = core_tasks.Task("{text}:", tuple(words), words=words)
    [decision] = task.classify(_Unnested(labels=labels), ["t"])
    texts = [a + b + c + d for a in "xyz" for b in "xyz" for c in "xyz" for d in "xyz"]
    for name, each in words.items():
        share = sum(any((name + text).startswith(word) for word in each) for text in texts) / 81 / 3
        assert (decision.logprobs or {})[name] == pytest.approx(math.log(share), abs=1e-9)


class _Unnested(FakeModel):
    """The fake refuses probabilities that come to more than 1, as those of nested words do."""

    def classify(
        self,
        prompts: Sequence[str],
        config: core.GenerateConfig | None = None,
        /,
        **options: Unpack[core.ClassifyOptions],
    ) -> list[core.ClassifyResult]:
        labels = (config or core.GenerateConfig()).labels
        logprobs = {label: -len(label) * math.log(3) for label in labels}
        return [core.ClassifyResult(logprobs=logprobs) for _ in prompts]


def test_words_that_begin_others_need_a_model_that_shows_its_tokens() -> None:
    class Silent(core.TextModelBase):
        model_type = "silent"
        info = FakeModel().info

    task = core_tasks.Task("{text}", LABELS, words=WORDS)
    with pytest.raises(LabelError, match="not expose its tokens"):
        task.classify(Silent("silent"), ["a"])
    plain = core_tasks.Task("{text}", LABELS, words={"finance": ("finance", "money")})
    with pytest.raises(core.UnsupportedOperationError):
        plain.classify(Silent("silent"), ["a"])


# --------------------------------------------------------------------------- modes


def test_each_label_is_asked_for_behind_one_text() -> None:
    task = core_tasks.Task("{text}\nIs it about {label}?", ("money", "games", "law"), mode="many")
    assert task.prompts(["A bet."]) == [
        "A bet.\nIs it about money?",
        "A bet.\nIs it about games?",
        "A bet.\nIs it about law?",
    ]
    model = says(
        {
            "money?": {"yes": 0.5, "no": 0.3},
            "games?": {"yes": 0.4, "no": 0.1},
            "law?": {"yes": 0.1, "no": 0.3},
        }
    )
    for decisions in (task.classify(model, ["A", "B"]), [*task.classify_iter(model, ["A", "B"])]):
        assert decisions[0] == decisions[1]
        decision = decisions[0]
        assert (decision.label, decision.labels) == (None, ("money", "games"))
        assert decision.probabilities == pytest.approx({"money": 0.625, "games": 0.8, "law": 0.25})
        assert decision.label_mass == pytest.approx(0.4)
        assert decision.parts["law"].label == "no"
        json.dumps(decision.to_dict(), allow_nan=False)
    assert replace(task, threshold=0.7).classify(model, ["A"])[0].labels == ("games",)

    # Each question has a prior, and a temperature, of its own.
    prior = task.fit_prior(model, ["A", "B"], "batch", strength=1.0)
    [decision] = prior.classify(model, ["C"])
    assert decision.probabilities == pytest.approx(dict.fromkeys(task.labels, 0.5))
    assert decision.level == decision.parts["law"].level == "batch"
    gold = [{"money"}, {"games", "money"}]
    fitted = task.fit(model, ["A", "B"], gold)
    assert fitted.calibration
    assert [*fitted.calibration.adjustments] == [*task.labels]
    task.fit_prior(model, method="pmi")
    domain = model.calls[-1].prompts
    assert domain == ("Is it about money?", "Is it about games?", "Is it about law?")


def test_numeric_levels_have_a_mean_and_a_spread() -> None:
    task = core_tasks.Task("{text} Stars:", ("5", "1", "3"), mode="levels")
    [decision] = task.classify(says({"": {"1": 0.1, "3": 0.2, "5": 0.5}}), ["any"])
    shares = np.array([0.125, 0.25, 0.625])
    mean = float(shares @ [1, 3, 5])
    assert decision.label == "5"
    assert decision.value == pytest.approx(mean)
    assert decision.spread == pytest.approx(math.sqrt(shares @ (np.array([1, 3, 5]) - mean) ** 2))
    assert decision.confidence == pytest.approx(score_confidence([*shares]))


def test_a_threshold_marks_what_is_not_sure_enough(model: FakeModel) -> None:
    decisions = replace(TASK, threshold=0.9).classify(model, [*BIASED])
    assert [item.accepted for item in decisions] == [False, True, False, True]
    assert all(item.label == "sports" for item in decisions)


# --------------------------------------------------------------------------- what goes wrong


def test_what_fails_with_a_text_is_its_error(model: FakeModel) -> None:
    for calls in (TASK.classify, TASK.classify_iter):
        broken = says(BIASED, errors={"rates This is about": EmptyPromptError()})
        one, other, third = calls(broken, ["banks", "rates", "goals"])
        assert one.error is third.error is None
        assert isinstance(other.error, EmptyPromptError)
        assert (other.label, other.probabilities) == (None, None)
        with pytest.raises(EmptyPromptError):
            other.raise_for_error()
        assert other.to_dict()["error"] == {
            "type": "EmptyPromptError",
            "message": str(other.error),
        }


@pytest.mark.parametrize("mode", ["one", "many"])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_blank_text_is_an_error_of_its_row_unless_allowed(mode: Any, streaming: bool) -> None:
    template = "{text} is {label}" if mode == "many" else "{text} is"
    task = core_tasks.Task(template, ("a", "b"), mode=mode)
    model = core.testing.FakeModel(labels=lambda prompt, labels: dict.fromkeys(labels, 0.4))
    texts = ["", "one", " \n", "\u00a0", "two", ""]
    whole = (task.classify(model, texts), [*task.classify_iter(model, iter(texts))])[streaming]
    blank = [isinstance(decision.error, core.EmptyPromptError) for decision in whole]
    assert blank == [True, False, True, True, False, True]
    assert {prompt for call in model.calls for prompt in call.prompts} == {
        *task.prompts(["one", "two"])
    }
    allowed = (
        task.classify(model, texts, allow_blank=True),
        [*task.classify_iter(model, texts, allow_blank=True)],
    )[streaming]
    assert [decision.error for decision in allowed] == [None] * 6
    assert len([*task.classify_iter(model, ["", " "])]) == 2


def test_fitting_leaves_empty_texts_out_and_raises_other_errors() -> None:
    texts = [*BIASED]
    gold = ["finance", "sports", "finance", "sports"]
    errors: dict[str, Exception] = {"rates This is about": EmptyPromptError()}
    model = says(BIASED, errors=errors)
    usable, whole = ["banks", "goals", "match"], says(BIASED)
    for fitted, expected in (
        (TASK.fit_prior(model, texts, "batch"), TASK.fit_prior(whole, usable, "batch")),
        (
            TASK.fit(model, texts, gold, "isotonic"),
            TASK.fit(whole, usable, ["finance", "sports", "sports"], "isotonic"),
        ),
    ):
        assert fitted.calibration == expected.calibration
        assert fitted.calibration
        assert fitted.calibration.rows == 3
    for error in (OutOfMemoryError("full"), GenerationCancelled()):
        errors["rates This is about"] = error
        with pytest.raises(type(error)):
            TASK.fit_prior(model, texts, "batch")


def test_a_model_that_says_nan_is_an_error_of_its_text() -> None:
    class Broken(_Unnested):
        def classify(self, *args: Any, **options: Any) -> list[core.ClassifyResult]:
            return [core.ClassifyResult(logprobs={"finance": math.nan, "sports": -1.0})]

    [decision] = TASK.classify(Broken(), ["any"])
    assert isinstance(decision.error, CalibrationError)


@pytest.mark.parametrize(
    ("texts", "gold", "message"),
    [
        (["banks"], ["finance"], "at least 2 rows, got 1"),
        (["banks", "goals"], ["finance"], "2 texts cannot be fitted to 1 gold"),
        (
            ["banks", "goals"],
            ["finance", "law"],
            "Text 1 has the gold label 'law', which is not",
        ),
        (["banks", "goals"], ["finance", None], "Text 1 has the gold label None"),
    ],
)
def test_gold_labels_that_cannot_be_fitted_are_refused(
    model: FakeModel, texts: list[str], gold: list[str], message: str
) -> None:
    with pytest.raises(CalibrationError, match=message):
        TASK.fit(model, texts, gold)


def test_priors_that_cannot_be_fitted_are_refused(model: FakeModel) -> None:
    with pytest.raises(CalibrationError, match="requires texts like the ones"):
        TASK.fit_prior(model, method="batch")
    for method in ("content-free", "pmi"):
        with pytest.raises(CalibrationError, match="does not use texts"):
            TASK.fit_prior(model, ["banks", "goals"], method)
    with pytest.raises(CalibrationError, match="at least 2 rows, got 1"):
        TASK.fit_prior(model, ["banks"], "batch")
    with pytest.raises(InvalidOptionError, match="method"):
        TASK.fit_prior(model, ["banks"], "magic")  # type: ignore[arg-type]
    many = core_tasks.Task("{text} {label}?", LABELS, mode="many")
    with pytest.raises(CalibrationError, match="collection of gold labels"):
        many.fit(model, ["banks", "goals"], ["finance", "sports"])


def test_options_of_the_call_are_the_callers_and_labels_the_tasks(model: FakeModel) -> None:
    TASK.classify(model, ["banks"], core.GenerateConfig(timeout=9.0, labels_only=True))
    config = model.calls[-1].config
    assert (config.timeout, config.labels, config.labels_only) == (9.0, LABELS, False)
    with pytest.raises(InvalidOptionError, match="the task sets them"):
        TASK.classify(model, ["banks"], core.GenerateConfig(labels=("law",)))
    with pytest.raises(TypeError, match="wrap a single one"):
        TASK.classify(model, "banks")
    with pytest.raises(TypeError, match="prompt 1 is a int"):
        [*TASK.classify_iter(model, ["banks", 3])]  # type: ignore[list-item]


def test_a_model_that_does_not_stream_is_asked_in_blocks() -> None:
    class Plain(core.TextModelBase):
        model_type = "plain"
        info = FakeModel().info
        sizes: list[int] = []  # noqa: RUF012

        def classify(self, prompts: Sequence[str], *args: Any, **options: Any) -> Any:
            self.sizes.append(len(prompts))
            row = {"finance": -1.0, "sports": -2.0}
            return [core.ClassifyResult(logprobs=row) for _ in prompts]

    model = Plain("plain")
    decisions = [*TASK.classify_iter(model, map(str, range(600)))]
    assert {item.label for item in decisions} == {"finance"}
    assert (len(decisions), model.sizes) == (600, [256, 256, 88])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"template": "no place"}, TaskError, r"must contain \{text\}"),
        ({"template": "{text} {title}"}, TaskError, r"contains \{title\}, .*\{\{title\}\}"),
        ({"mode": "many"}, TaskError, r"must contain \{label\}"),
        ({"template": "{text} {label}"}, TaskError, r"contains \{label\}"),
        ({"mode": "two"}, InvalidOptionError, "mode"),
        ({"labels": "finance"}, InvalidOptionError, "labels"),
        ({"labels": ("finance",)}, LabelError, "needs more labels"),
        ({"labels": ()}, LabelError, "needs more labels"),
        ({"labels": ("a", "a")}, LabelError, "Duplicate label"),
        ({"mode": "levels"}, LabelError, "not all numbers"),
        ({"mode": "levels", "labels": ("1", "nan")}, LabelError, "not all numbers"),
        ({"mode": "levels", "labels": ("1", "1.0")}, LabelError, "are equal"),
        ({"words": {"law": ("law",)}}, LabelError, "the unknown label 'law'"),
        ({"words": {"finance": ()}}, LabelError, "is empty for 'finance'"),
        ({"words": {"finance": "money"}}, InvalidOptionError, "words"),
        ({"words": {"finance": ("sports",)}}, LabelError, "Duplicate label 'sports'"),
        ({"words": {"finance": ("money", "money")}}, LabelError, "Duplicate label 'money'"),
        ({"threshold": 2}, InvalidOptionError, "threshold"),
    ],
)
def test_a_task_that_cannot_be_asked_cannot_be_made(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        replace(TASK, **change)


def test_a_text_is_left_as_it_is() -> None:
    task = core_tasks.Task('{{text}} {"a": 1} {text}!', LABELS)
    assert task.prompts(["{text} {label} {{x}}"]) == ['{text} {"a": 1} {text} {label} {{x}}!']


def test_of_many_labels_some_are_named_whatever_their_order() -> None:
    """One text for each label would make labels x labels probabilities."""
    labels = [f"label {number:03}" for number in range(300)]
    prompts: list[str] = []

    def answer(prompt: str, labels: Sequence[str]) -> dict[str, float]:
        prompts.append(prompt)
        return {label: 0.9 if label in prompt else 0.1 / 299 for label in labels}

    for order in (labels, labels[::-1]):
        prompts.clear()
        fitted = core_tasks.Task("{text} It is", tuple(order)).fit_prior(
            FakeModel("x", labels=answer)
        )
        assert fitted.level == "content-free"
        named = sorted(prompt for prompt in prompts if "about label" in prompt)
        assert named == [f"It is about label {number:03}. It is" for number in range(20)]
