"""Columns in and frames out: the library's decisions, row by row, in pandas, polars and pyarrow."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
import core_tasks
from core.api import close_shared_models
from core.kit.support import blank_error
from core.testing import FakeModel
from core_frames import classify
from core_learn import FewShot

LABELS = ("good", "bad")
TEMPLATE = "{text} This is"
COLUMNS = ["label", "probabilities", "margin", "label_mass", "error"]
TEXTS = ["good good", None, "", "bad", "good good"]


def likely(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """A label is as likely as it is often in the prompt."""
    counts = [prompt.count(label) + 0.2 for label in labels]
    return {label: count / sum(counts) / 2 for label, count in zip(labels, counts, strict=True)}


@pytest.fixture
def model() -> FakeModel:
    return FakeModel(labels=likely)


def series(values: Sequence[str | None]) -> Any:
    return pd.Series(values, index=range(7, 7 + len(values)), name="text", dtype="str")


MAKERS: dict[str, Callable[[Sequence[str | None]], Any]] = {
    "pandas": series,
    "pandas object": lambda values: pd.Series(values, name="text", dtype=object),
    "pandas nullable": lambda values: pd.Series(values, name="text", dtype="string"),
    "pandas arrow": lambda values: pd.Series(values, name="text", dtype=pd.ArrowDtype(pa.string())),
    "polars": lambda values: pl.Series("text", values, dtype=pl.String),
    "pyarrow": lambda values: pa.chunked_array(
        [pa.array(values[:1], pa.string()), pa.array(values[1:], pa.string())]
    ),
}
KINDS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.Table}


def rows(frame: Any) -> list[dict[str, Any]]:
    """The rows of a frame of any library, nulls as None."""
    if isinstance(frame, pa.Table):
        return list(frame.to_pylist())
    if isinstance(frame, pl.DataFrame):
        return frame.to_dicts()
    found = frame.to_dict("records")
    return [{name: None if _null(value) else value for name, value in row.items()} for row in found]


def _null(value: object) -> bool:
    return value is pd.NA or (isinstance(value, float) and math.isnan(value))


def wanted(decision: core_tasks.Decision | None) -> dict[str, Any]:
    """The row of a decision; of none where there was no text."""
    if decision is None:
        return dict.fromkeys(COLUMNS)
    error = decision.error and f"{type(decision.error).__name__}: {decision.error}"
    said = {name: getattr(decision, name) for name in COLUMNS[:-1]}
    return said | {"error": error}


def decided(task: core_tasks.Task, model: Any, texts: Sequence[str | None]) -> list[dict[str, Any]]:
    """What the library says of these texts."""
    decisions = iter(task.classify(model, [text for text in texts if text and text.strip()]))
    said: list[core_tasks.Decision | None] = []
    for text in texts:
        if text is None:
            said.append(None)
        else:
            error = blank_error(text)
            said.append(core_tasks.Decision(error=error) if error else next(decisions))
    return [wanted(decision) for decision in said]


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, pd.NaT], ids=repr)
def test_every_missing_value_of_pandas_is_a_row_of_nulls(missing: object, model: FakeModel) -> None:
    column = pd.Series(["good", missing, " "], dtype=object)
    found = rows(classify(column, model, LABELS, template=TEMPLATE))
    assert [row["label"] for row in found] == ["good", None, None]
    assert [row["error"] is None for row in found] == [True, True, False]


@pytest.mark.parametrize("kind", MAKERS)
def test_each_row_is_what_the_library_says(kind: str, model: FakeModel) -> None:
    frame = classify(MAKERS[kind](TEXTS), model, LABELS)
    assert isinstance(frame, KINDS[kind.split()[0]])
    assert list(getattr(frame, "column_names", None) or frame.columns) == COLUMNS
    assert rows(frame) == decided(core_tasks.Task("{text}", LABELS), model, TEXTS)
    assert [row["label"] for row in rows(frame)] == ["good", None, None, "bad", "good"]


def test_a_null_is_not_asked_and_an_empty_text_is_an_error_of_its_row(model: FakeModel) -> None:
    frame = classify(pl.Series(TEXTS), model, LABELS)
    assert frame["error"].is_null().to_list() == [True, True, False, True, True]
    assert frame["error"][2].startswith("EmptyPromptError: ")
    asked = [call.prompts[0] for call in model.calls]
    assert asked == [text for text in TEXTS if text]


@pytest.mark.parametrize("kind", MAKERS)
def test_a_blank_text_is_an_error_of_its_row_unless_allowed(kind: str, model: FakeModel) -> None:
    column = MAKERS[kind](["bad", " \u00a0", "\n", "good"])
    frame = rows(classify(column, model, LABELS, template="{text} It is"))
    assert [row["label"] for row in frame] == ["bad", None, None, "good"]
    assert frame[1]["error"].startswith("EmptyPromptError: The text is blank.")
    frame = rows(classify(column, model, LABELS, template="{text} good", allow_blank=True))
    assert [row["error"] for row in frame] == [None] * 4


def test_the_index_of_a_series_is_kept(model: FakeModel) -> None:
    times = pd.date_range("2026-01-01", periods=3)
    df = pd.DataFrame({"text": ["good", "bad", None], "n": [1, 2, 3]}, index=times)
    found = classify(df["text"], model, LABELS)
    assert found.index.equals(times)
    joined = df.join(found).join(classify(df["text"], model, LABELS, prefix="again_"))
    assert joined["label"].tolist()[:2] == joined["again_label"].tolist()[:2] == ["good", "bad"]
    assert joined["label"].isna().tolist() == [False, False, True]

    several = pd.MultiIndex.from_tuples([("a", 1), ("a", 1), ("b", 2)])  # and one that repeats
    assert classify(df["text"].set_axis(several), model, LABELS).index.equals(several)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("texts", [[], [None, None]])
def test_a_column_without_texts_has_the_same_columns(
    kind: str, texts: list[None], model: FakeModel
) -> None:
    frame = classify(MAKERS[kind](texts), model, LABELS)
    assert rows(frame) == [dict.fromkeys(COLUMNS) for _ in texts]
    assert model.calls == []


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)))
def test_any_column_of_texts(texts: list[str | None]) -> None:
    model = FakeModel(labels=likely)
    said = decided(core_tasks.Task(TEMPLATE, LABELS), model, texts)
    for make in (MAKERS["pandas object"], MAKERS["polars"], MAKERS["pyarrow"]):
        assert rows(classify(make(texts), model, LABELS, template=TEMPLATE)) == said


# ------------------------------------------------------------------------ tasks and heads


def test_a_calibrated_task_says_what_it_says_in_the_library(
    model: FakeModel, tmp_path: Path
) -> None:
    texts = ["good", "bad bad", "good bad"]
    task = core_tasks.Task(TEMPLATE, LABELS).fit_prior(model, texts, "batch")
    task.save(tmp_path / "task.toml")
    for asked in (task, tmp_path / "task.toml", str(tmp_path / "task.toml")):
        assert rows(classify(pl.Series(texts), model, task=asked)) == decided(task, model, texts)


def test_a_calibration_of_another_task_is_refused_before_any_work(model: FakeModel) -> None:
    other = (
        core_tasks.Task("{text} So it is", LABELS)
        .fit_prior(model, ["good", "bad"], "batch")
        .calibration
    )
    model.calls.clear()
    with pytest.raises(core.CalibrationError):
        classify(pl.Series(TEXTS), model, task=core_tasks.Task(TEMPLATE, LABELS, calibration=other))
    assert model.calls == []


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_a_task_has_its_own_columns(kind: str, model: FakeModel) -> None:
    column = MAKERS[kind](["good", None])
    many = core_tasks.Task("{text} is {label}?", LABELS, mode="many")
    first, null = rows(classify(column, model, task=many))
    assert first["labels"] == ["good", "bad"]
    assert first["label"] is None
    assert set(first["probabilities"]) == set(LABELS)
    assert set(null.values()) == {None}

    levels = rows(
        classify(column, model, task=core_tasks.Task(TEMPLATE, ("1", "2"), mode="levels"))
    )
    assert [row["value"] for row in levels] == [1.5, None]

    strict = rows(classify(column, model, task=core_tasks.Task(TEMPLATE, LABELS, threshold=0.99)))
    assert [row["accepted"] for row in strict] == [False, None]


def test_a_head_says_what_it_says_in_the_library(model: FakeModel, tmp_path: Path) -> None:
    texts = [f"{'good' if n % 2 else 'bad'} thing {n}" for n in range(12)]
    few = FewShot(model).fit(texts, [text.split()[0] for text in texts])
    few.save(tmp_path / "head.safetensors")
    said = [wanted(decision) for decision in few.classify(["good one", "bad one"])]
    column = pl.Series(["good one", "bad one"])
    for asked in (few.head, tmp_path / "head.safetensors"):
        found = rows(classify(column, model, head=asked))
        assert [row["label"] for row in found] == [row["label"] for row in said]
        for row, other in zip(found, said, strict=True):
            assert row["probabilities"] == pytest.approx(other["probabilities"])
            assert "label_mass" not in row


# ------------------------------------------------------------------------ what stops, what is wrong


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_what_is_cancelled_keeps_what_is_done(kind: str) -> None:
    cancel = threading.Event()

    def set_behind_two(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
        if prompt.startswith("2"):
            cancel.set()
        return likely(prompt, labels)

    column = MAKERS[kind]([f"{n} good" for n in range(5)])
    found = rows(classify(column, FakeModel(labels=set_behind_two), LABELS, cancel=cancel))
    assert [row["label"] for row in found] == ["good"] * 3 + [None] * 2
    assert all(row["error"].startswith("GenerationCancelled: ") for row in found[3:])


def test_late_rows_have_their_error(model: FakeModel) -> None:
    found = classify(pl.Series(["good", "bad"]), model, LABELS, timeout=1e-9)
    assert all(error.startswith("GenerationTimeout: ") for error in found["error"])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["good"], "got list"),
        ("good", "got str"),
        (pd.DataFrame({"text": ["good"]}), "got DataFrame"),
        (pl.LazyFrame({"text": ["good"]}), "got LazyFrame"),
        (pd.Series([1, 2], name="n"), "Row 0 of the column 'n' is not a string, but int"),
        (pd.Series(["good", 1.5], name="n"), "Row 1 of the column 'n' is not a string, but float"),
        (pl.Series("n", [b"good"]), "Row 0 of the column 'n' is not a string, but bytes"),
    ],
)
def test_what_is_no_column_of_texts_is_told(column: Any, message: str, model: FakeModel) -> None:
    with pytest.raises(TypeError, match=message):
        classify(column, model, LABELS)
    assert model.calls == []


def test_exactly_one_thing_is_asked(model: FakeModel) -> None:
    task = core_tasks.Task(TEMPLATE, LABELS)
    with pytest.raises(core.TaskError, match="exactly one of labels, a task and a head"):
        classify(pl.Series(TEXTS), model)
    with pytest.raises(core.TaskError, match="exactly one of labels, a task and a head"):
        classify(pl.Series(TEXTS), model, LABELS, task=task)
    with pytest.raises(core.TaskError):
        classify(pl.Series(TEXTS), model, LABELS, template="no place")


def test_a_real_model_by_its_path(smollm2_dir: Path) -> None:
    texts = ["The bank raised its rate.", None, "The goalkeeper saved twice."]
    df = pd.DataFrame({"text": texts})
    labels = ("finance", "sports")
    try:
        first = classify(df["text"], smollm2_dir, labels, template="{text} This news is about")
        again = classify(df["text"], smollm2_dir, labels, template="{text} This news is about")
    finally:
        close_shared_models()
    assert first["label"].dropna().tolist() == ["finance", "sports"]
    assert first["label_mass"].between(0, 1).tolist() == [True, False, True]
    assert again.equals(first)
