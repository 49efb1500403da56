"""The actor without a cluster: its columns, its errors, and what it makes of a death."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

import core
import core_tasks
from core.testing import FakeEncoder, FakeModel
from core_ray import ActorLoadError
from core_ray.actor import Actor, _key
from core_ray.record import Record
from core_ray.work import Classifying, Generating, Work
from core_tasks.deciding import question_of

LABELS = ("good", "bad")
TASK = core_tasks.Task("{text}", LABELS)


class Died(BaseException):
    """In the place of a process's death: nothing behind it is run."""


@dataclass
class Reported:
    """A reporter to a record in this process."""

    record: Record = field(default_factory=Record)

    def begun(self, what: str) -> int:
        return self.record.begun("one", what)

    def ended(self, what: str) -> None:
        self.record.ended("one", what)


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    if "KILL" in prompt:
        raise Died
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def loaded() -> FakeModel:
    return FakeModel("Paris.", labels=said)


def actor(work: Work, reporter: Any = None, load: Callable[[], Any] = loaded) -> Actor:
    used: Any = reporter or Reported()
    return Actor(work, load, "text", used, 3)


def texts(*values: object) -> pa.Table:
    return pa.table({"text": pa.array(values, pa.string())})


def test_answers_are_those_of_the_task_itself() -> None:
    rows = [f"{'good ' * (n % 3)}{'bad ' * (n % 2)}{n}" for n in range(20)]
    made = actor(Classifying(TASK))(texts(*rows)).to_pylist()
    for row, decision in zip(made, TASK.classify(loaded(), rows), strict=True):
        assert row["label"] == decision.label
        assert row["probabilities"] == decision.probabilities
        assert (row["margin"], row["label_mass"]) == (decision.margin, decision.label_mass)
        assert row["error"] is None


def test_rows_that_fail_have_an_error_and_nulls_stay_null() -> None:
    made = actor(Classifying(TASK))(texts("good", "", None, "bad")).to_pylist()
    assert [row["label"] for row in made] == ["good", None, None, "bad"]
    assert made[1]["error"].startswith("EmptyPromptError: ")
    assert {name for name, value in made[2].items() if value is not None} == set()


@pytest.mark.parametrize("work", [Classifying(TASK), Generating(core.GenerateConfig(), "{text}.")])
def test_a_blank_text_is_an_error_of_its_row_unless_allowed(work: Work) -> None:
    rows = texts("good", " ", None, "\t")
    errors = actor(work)(rows).column("error").to_pylist()
    assert [error is not None for error in errors] == [False, True, False, True]
    assert errors[1].startswith("EmptyPromptError: The text is blank.")
    used: Any = Reported()
    allowing = Actor(work, loaded, "text", used, allow_blank=True)
    assert allowing(rows).column("error").to_pylist() == [None] * 4


def test_the_columns_have_the_same_types_whatever_is_in_them() -> None:
    work = Classifying(TASK)
    sound, failed = actor(work)(texts("good")), actor(work)(texts(None))
    assert sound.schema == failed.schema
    assert actor(work)(texts()).schema == sound.schema


def test_a_column_of_the_input_is_never_lost() -> None:
    rows = pa.table({"text": ["good"], "label": ["gold"], "input_label": ["older"]})
    [row] = actor(Classifying(TASK))(rows).to_pylist()
    assert (row["label"], row["input_label"], row["input_input_label"]) == ("good", "older", "gold")


def test_tasks_of_every_mode_have_their_columns() -> None:
    many = core_tasks.Task("{text} {label}?", ("a", "b"), mode="many")
    levels = core_tasks.Task("{text}", ("1", "2"), mode="levels", threshold=0.9)
    [row] = actor(Classifying(many))(texts("yes")).to_pylist()
    assert (row["label"], row["labels"]) == (None, ["a", "b"])
    assert set(row["probabilities"]) == {"a", "b"}
    [row] = actor(Classifying(levels))(texts("1 1 1")).to_pylist()
    assert row["label"] == "1"
    assert 1 <= row["value"] < 1.5
    assert row["accepted"] is False


def test_a_head_is_asked(tmp_path: Any) -> None:
    few = pytest.importorskip("core_learn").FewShot(loaded())
    few.fit(["good good", "good day", "bad bad", "bad day"], ["good", "good", "bad", "bad"])
    made = actor(Classifying(few.head))(texts("good good", "bad bad")).to_pylist()
    assert [row["label"] for row in made] == ["good", "bad"]
    assert made[0]["label_mass"] is None  # a head looks at no label


def test_generation_with_and_without_the_models_template() -> None:
    config = core.GenerateConfig(max_tokens=3)
    [row] = actor(Generating(config))(texts("Where?")).to_pylist()
    assert (row["answer"], row["finish_reason"], row["error"]) == ("Par", "length", None)
    model = loaded()
    work = Generating(config, "Say: {text}", chat=True)
    actor(work, load=lambda: model)(texts("Where?"))
    assert model.calls[-1].prompts == (model.render_chat([core.Message("user", "Say: Where?")]),)
    told = Generating(core.GenerateConfig(chat_template_kwargs={"tone": 1}), chat=True)
    with pytest.raises(core.InvalidOptionError, match="'tone' is not valid"):
        told.bound(model)(["Where?"])


def test_a_model_that_cannot_be_loaded_is_told_of_with_the_first_batch() -> None:
    def load() -> FakeModel:
        raise core.InvalidModelError("no weights")

    made = actor(Classifying(TASK), load=load)
    with pytest.raises(ActorLoadError, match=r"on .+: InvalidModelError: no weights"):
        made(texts("good"))


def test_a_model_of_which_processes_die_is_not_loaded_for_ever() -> None:
    def load() -> FakeModel:
        raise Died

    reporter = Reported()
    for _ in range(3):
        with pytest.raises(Died):
            actor(Classifying(TASK), reporter, load)
    with pytest.raises(ActorLoadError, match="3 processes died while loading it"):
        actor(Classifying(TASK), reporter, load)(texts("good"))


def test_a_row_that_kills_is_found_and_the_others_are_answered() -> None:
    rows = texts("good", "KILL one", "bad", "KILL two", "good again")
    reporter, deaths, made = Reported(), 0, None
    while made is None:
        try:
            made = actor(Classifying(TASK), reporter)(rows).to_pylist()
        except Died:
            deaths += 1
            assert deaths < 10
    assert deaths == 5  # the batch, then two of each row alone
    assert [row["label"] for row in made] == ["good", None, "bad", None, "good"]
    assert made[1]["error"] == (
        "PoisonedRowError: Row skipped: 3 processes died while computing it."
    )


def test_a_batch_that_was_killed_for_nothing_is_answered_whole() -> None:
    reporter = Reported()
    reporter.begun(_key("good", "bad"))  # and then the process was killed
    made = actor(Classifying(TASK), reporter)(texts("good", "bad")).to_pylist()
    assert [row["label"] for row in made] == ["good", "bad"]
    assert not reporter.record._begun


def test_a_column_that_is_not_there_ends_the_job() -> None:
    with pytest.raises(core.InvalidOptionError, match="a column: body"):
        actor(Classifying(TASK))(pa.table({"body": ["good"]}))
    with pytest.raises(core.InvalidOptionError, match="a column of text, not int64"):
        actor(Classifying(TASK))(pa.table({"text": [1, 2]}))


def test_an_encoder_is_asked_with_its_label_sentence() -> None:
    question = question_of(("good", "bad"), label_sentence="{label} news")
    made = actor(Classifying(question), load=FakeEncoder)(texts("good day", "bad day"))
    wanted = question.classify(FakeEncoder(), ["good day", "bad day"])
    rows = made.to_pylist()
    assert [row["label"] for row in rows] == ["good", "bad"]
    assert [row["probabilities"] for row in rows] == [d.probabilities for d in wanted]
    assert [row["label_mass"] for row in rows] == [None, None]
