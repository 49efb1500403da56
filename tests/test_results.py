"""Results as programs use them: for JSON, for a notebook, and with their errors raised."""

from __future__ import annotations

import gc
import json
import math
import weakref
from array import array
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

import core
import core_tasks
from core.errors import EmptyPromptError
from core.testing import FakeModel
from core.types import (
    BatchResult,
    ClassifyResult,
    GenerateMetrics,
    HiddenResult,
    Score,
    Token,
    TokenSequence,
)
from core_tasks.evaluation.result import ItemResult

NO, ERROR = "it's <b>no</b>", EmptyPromptError("The prompt is empty.")
LABELLED = ClassifyResult(
    token=Token(7, " é", -math.inf),
    logits=array("f", (1.5, -math.inf, math.nan)),
    label="ja",
    probabilities={NO: 0.25, "ja": 0.75},
    logprobs={NO: -math.inf, "ja": -0.5},
    label_mass=0.5,
    margin=0.5,
)
WROTE = BatchResult((Token(1, "a"), Token(2, " b", -1.0)), "length")
SEEN = HiddenResult((0, 5), array("f", (1.0, -math.inf, 0.5, 2.0)))
RESULTS = (LABELLED, WROTE, Score(-3.0, (-1.0, -2.0)), SEEN, LABELLED.token, GenerateMetrics(3))


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_dictionary_is_what_json_gives_back(result: Any) -> None:
    text = json.dumps(result.to_dict(), allow_nan=False)
    assert json.loads(text) == result.to_dict()


def test_what_json_cannot_hold_is_null() -> None:
    found: Any = LABELLED.to_dict(logits=True)
    assert found["token"] == {"id": 7, "text": " é", "logprob": None}
    assert found["logprobs"] == {NO: None, "ja": -0.5}
    assert found["logits"] == [1.5, None, None]
    json.dumps(found, allow_nan=False)


def test_numbers_of_numpy_are_plain_ones() -> None:
    numpy = pytest.importorskip("numpy")
    token = Token(1, "a", numpy.float32(-0.5))
    assert json.dumps(token.to_dict()["logprob"]) == "-0.5"


def test_logits_are_there_where_they_are_asked_for() -> None:
    assert "logits" not in LABELLED.to_dict()
    assert ClassifyResult().to_dict(logits=True)["logits"] is None


def test_states_are_one_vector_for_each_layer_and_no_copy() -> None:
    first, second = SEEN.vectors
    assert (list(first), list(second)) == ([1.0, -math.inf], [0.5, 2.0])
    assert SEEN.states is not None
    SEEN.states[3] = 4.0
    assert (second[1], second.format, second.readonly) == (4.0, "f", False)
    SEEN.states[3] = 2.0
    assert SEEN.to_dict()["states"] == [[1.0, None], [0.5, 2.0]]
    assert HiddenResult(error=ERROR).vectors == ()


def test_a_text_is_in_the_dictionary_and_rates_are() -> None:
    assert WROTE.to_dict()["text"] == "a b"
    assert GenerateMetrics(8, prefill_seconds=2.0).to_dict()["prefill_tokens_per_second"] == 4.0


@pytest.mark.parametrize("kind", [ClassifyResult, BatchResult, Score, HiddenResult])
def test_an_error_is_told_or_raised(kind: Any) -> None:
    failed = kind(error=ERROR)
    assert failed.to_dict()["error"] == {
        "type": "EmptyPromptError",
        "message": "The prompt is empty.",
    }
    json.dumps(failed.to_dict(), allow_nan=False)
    with pytest.raises(EmptyPromptError):
        failed.raise_for_error()
    sound = kind()
    assert sound.raise_for_error() is sound


def test_a_notebook_shows_labels_best_first_and_no_markup_of_theirs() -> None:
    shown = LABELLED._repr_html_()
    assert shown.index("<td>ja</td><td>0.7500</td>") < shown.index("&lt;b&gt;no&lt;/b&gt;")
    assert "<b>" not in shown
    assert "<td>a &lt;b&gt;</td>" in ClassifyResult(label="a <b>")._repr_html_()
    assert "&#x27; é&#x27;" in ClassifyResult(token=Token(7, " é"))._repr_html_()
    assert "EmptyPromptError: The prompt is empty." in ClassifyResult(error=ERROR)._repr_html_()


def test_they_are_part_of_the_contract() -> None:
    assert core.ClassifyResult.to_dict is ClassifyResult.to_dict


@pytest.mark.parametrize(
    "kind",
    [
        ClassifyResult,
        BatchResult,
        Score,
        HiddenResult,
        partial(TokenSequence, (), (), "error"),
        core_tasks.Decision,
        partial(ItemResult, "gold"),
    ],
)
def test_the_error_of_a_row_holds_no_frames(kind: Any) -> None:
    def failed(model: FakeModel) -> None:
        try:
            model.generate("").text()
        except EmptyPromptError as error:
            raise core.TaskError("a row") from error

    def row_of(model: FakeModel) -> Any:
        try:
            failed(model)
        except core.TaskError as error:
            return kind(error=error)

    model = FakeModel("never")
    dropped, row = weakref.ref(model), row_of(model)
    del model
    gc.collect()
    assert dropped() is None
    assert isinstance(row.error.__cause__, EmptyPromptError)


def test_an_error_that_is_on_its_way_keeps_its_traceback() -> None:
    """It is the context of an error that a row failed with meanwhile."""
    rows: list[ClassifyResult] = []

    def fail() -> None:
        try:
            raise OSError("first")
        finally:
            with suppress(EmptyPromptError):
                FakeModel("never").generate("").text()
            rows.extend(FakeModel("never").classify([""]))

    with pytest.raises(OSError, match="first") as caught:
        fail()
    assert rows[0].error is not None
    assert rows[0].error.__context__ is None
    assert [entry.name for entry in caught.traceback][1:] == ["fail"]
