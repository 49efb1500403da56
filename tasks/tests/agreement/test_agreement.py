"""Agreement with gold labels: figures worked out by hand, and relations that hold for all rows."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tasks.agreement import Agreement, measures

Row = tuple[str, str | None, float | None]
LABELS = st.sampled_from(["a", "b", "c", ""])
ROWS = st.lists(st.tuples(LABELS, st.none() | LABELS, st.none() | st.floats(0, 1)), max_size=40)


def counted(rows: list[Row], **options: int) -> Agreement:
    agreement = Agreement(**options)
    for gold, label, probability in rows:
        spread = None
        if label is not None and probability is not None:
            spread = {label: probability, "another": 1 - probability}
        agreement.add(gold, label, probability, probabilities=spread)
    return agreement


SIX: list[Row] = [
    *[("a", "a", None), ("a", "b", None), ("a", "a", None)],
    *[("b", "b", None), ("b", None, None), ("c", "a", None)],
]


def test_a_report_by_hand() -> None:
    report = counted(SIX).to_dict()
    low, high = report.pop("accuracy_interval")
    # 3 of 5: (0.6 + 0.38415 ± 1.96 sqrt(0.048 + 0.03841)) / 1.76829
    assert (low, high) == pytest.approx((0.230724, 0.882379), abs=1e-6)
    assert report.pop("macro_f1") == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)
    assert len(report.pop("bins")) == 15
    assert report == {
        "rows": 6,
        "answered": 5,
        "right": 3,
        "coverage": 5 / 6,
        "accuracy": 0.6,
        "calibration_error": None,
        "calibration_error_interval": None,
        "brier": None,
        "labels": {
            "a": {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "support": 3, "answered": 3},
            "b": {"precision": 0.5, "recall": 0.5, "f1": 0.5, "support": 2, "answered": 2},
            "c": {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1, "answered": 0},
        },
        "confusion": {"a": {"a": 2, "b": 1}, "b": {"b": 1}, "c": {"a": 1}},
        "unanswered": {"b": 1},
    }


def test_bins_of_equal_width_by_hand() -> None:
    rows: list[Row] = [
        *[("a", "b", 0.4), ("a", "a", 0.5)],
        *[("a", "a", 0.9), ("a", "b", 0.8), ("a", "a", 1.0)],
        ("a", "a", None),  # has no say
    ]
    first, second = counted(rows, bins=2).to_dict()["bins"]
    assert first == {
        "low": 0.0,
        "high": 0.5,
        "count": 2,
        "accuracy": 0.5,
        "confidence": pytest.approx(0.45),
    }
    assert (second["count"], second["accuracy"]) == (3, pytest.approx(2 / 3))


def test_briers_score_by_hand() -> None:
    agreement = Agreement()
    agreement.add("a", "a", probabilities={"a": 0.7, "b": 0.3})  # 0.09 + 0.09
    agreement.add("c", "a", probabilities={"a": 0.7, "b": 0.3})  # 0.49 + 0.09 + 1
    agreement.add("a", "a", 0.2)  # has no say in it
    report = agreement.to_dict()
    assert report["brier"] == pytest.approx((0.18 + 1.58) / 2)
    # The label's own probability was found among them.
    assert sum(bin["count"] for bin in report["bins"]) == 3


@pytest.mark.parametrize(("right", "rows"), [(8, 10), (1, 3), (500, 1000), (1, 10**9)])
def test_wilsons_interval_solves_the_equation_that_defines_it(right: int, rows: int) -> None:
    interval = measures.wilson(right, rows)
    assert interval is not None
    for end in interval:
        distance = measures.Z_95 * math.sqrt(end * (1 - end) / rows)
        assert abs(right / rows - end) == pytest.approx(distance, rel=1e-6)


def test_wilsons_interval_as_printed() -> None:
    # R's binom.confint(8, 10, methods="wilson").
    assert measures.wilson(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert measures.wilson(0, 0) is None
    assert measures.wilson(0, 10) == pytest.approx((0.0, 0.2775328), abs=1e-6)
    assert measures.wilson(10, 10) == pytest.approx((0.7224672, 1.0), abs=1e-6)


def test_nothing_counted_defines_nothing() -> None:
    report = Agreement().to_dict()
    names = ("accuracy", "accuracy_interval", "coverage", "macro_f1", "brier", "calibration_error")
    assert [report[name] for name in names] == [None] * 6
    unsure = counted([("a", None, 0.5)]).to_dict()
    assert (unsure["coverage"], unsure["accuracy"]) == (0.0, None)
    assert unsure["labels"]["a"]["support"] == 1


@given(ROWS, st.randoms())
def test_any_order_and_any_parts_come_to_the_same(rows: list[Row], shuffler: random.Random) -> None:
    whole = counted(rows)
    shuffled = [*rows]
    shuffler.shuffle(shuffled)
    cut = shuffler.randint(0, len(rows))
    first, second = counted(shuffled[:cut]), counted(shuffled[cut:])
    resumed = Agreement.from_state(json.loads(json.dumps(first.state())))
    resumed.merge(second)
    assert resumed.to_dict() == whole.to_dict()
    first.merge(first)  # with itself, too
    assert first.rows == 2 * cut


@given(ROWS)
def test_the_figures_are_those_of_a_second_reckoning(rows: list[Row]) -> None:
    report = counted(rows).to_dict()
    answered = [(gold, label) for gold, label, _ in rows if label is not None]
    assert report["answered"] == len(answered)
    assert report["right"] == sum(gold == label for gold, label in answered)
    for name, row in report["labels"].items():
        assert row["support"] == sum(gold == name for gold, _, _ in rows)
        assert row["answered"] == sum(label == name for _, label in answered)
        hits = sum(gold == label == name for gold, label in answered)
        assert row["recall"] * row["support"] == pytest.approx(hits)
        assert row["precision"] * row["answered"] == pytest.approx(hits)
        both = row["precision"] + row["recall"]
        expected = 2 * row["precision"] * row["recall"] / both if both else 0.0
        assert row["f1"] == pytest.approx(expected)
    low, high = report["accuracy_interval"] or (0.0, 1.0)
    assert 0.0 <= low <= (report["accuracy"] or 0.0) <= high <= 1.0 or not answered
    error = report["calibration_error"]
    low, high = report["calibration_error_interval"] or (0.0, 0.0)
    assert error is None or 0.0 <= low <= error <= high
    assert json.loads(json.dumps(report, allow_nan=False)) == report


@pytest.mark.parametrize(
    ("arguments", "keywords", "error"),
    [
        ((1, "a"), {}, TypeError),
        (("a", True), {}, TypeError),
        (("a", "a", 1.1), {}, ValueError),
        (("a", "a", math.nan), {}, ValueError),
        (("a", "a"), {"probabilities": {"a": 0.5}}, ValueError),
        (("a", "a"), {"probabilities": {"a": math.nan}}, ValueError),
    ],
)
def test_a_wrong_row_is_not_counted(arguments: Any, keywords: Any, error: type[Exception]) -> None:
    agreement = Agreement()
    with pytest.raises(error):
        agreement.add(*arguments, **keywords)
    assert agreement.to_dict() == Agreement().to_dict()


STATE: dict[str, Any] = {
    "format": 2,
    "confusion": {"a": {"a": 2, "b": 1}},
    "unanswered": {"b": 1},
    "bins": 2,
    "cells": [[1023, 1, 1, 536870912, 268435456], [1843, 2, 1, 1932735284, 880468296]],
    "brier": [1, 193273528],
}
FIRST: dict[str, Any] = {  # as format 1 was written
    **{name: STATE[name] for name in ("confusion", "unanswered", "brier")},
    "format": 1,
    "bins": [[0, 0, 0], [3, 2, 2684354560]],
}


def test_a_stored_state_is_read() -> None:
    agreement = Agreement.from_state(STATE)
    assert agreement.state() == STATE
    report = agreement.to_dict()
    assert report["brier"] == pytest.approx(0.18)
    assert report["bins"][0]["confidence"] == pytest.approx(0.5)
    assert report["bins"][1]["confidence"] == pytest.approx(0.9)
    agreement.add("a", "a", 0.9)
    assert agreement.rows == 5
    assert STATE["confusion"]["a"]["a"] == 2  # what was read is not what is counted in
    assert STATE["cells"][1][1] == 2


def test_a_state_of_the_first_format_is_read_as_rows_of_one_probability_a_bin() -> None:
    old, report = Agreement.from_state(FIRST), Agreement.from_state(FIRST).to_dict()
    assert report["bins"][1]["confidence"] == pytest.approx(2.5 / 3)
    rows: list[Row] = [*[("a", "a", 2.5 / 3)] * 2, ("a", "b", 2.5 / 3)]
    error = counted(rows, bins=2).to_dict()["calibration_error"]
    assert report["calibration_error"] == pytest.approx(error, abs=1e-6)
    assert Agreement.from_state(old.state()).to_dict() == report
    old.merge(counted(rows, bins=2))
    assert old.rows == 7


@pytest.mark.parametrize(
    ("state", "told"),
    [
        ({**STATE, "format": 3}, "format 3, but this version of core reads up to 2"),
        ({}, "not the state of an agreement"),
        (None, "not the state of an agreement"),
        ({**STATE, "format": "1"}, "not the state of an agreement"),
        ({**STATE, "bins": []}, "not the state of an agreement"),
        ({**STATE, "bins": 0}, "not the state of an agreement"),
        ({**STATE, "cells": [[1, 2]]}, "not the state of an agreement"),
        ({**STATE, "cells": [[2048, 1, 1, 1, 1]]}, "not the state of an agreement"),
        ({**STATE, "cells": [[0, 1, 2, 1, 1]]}, "not the state of an agreement"),
        ({**STATE, "cells": [[0, 0, 0, 0, 0]]}, "not the state of an agreement"),
        ({**FIRST, "bins": []}, "not the state of an agreement"),
        ({**FIRST, "bins": [[1, 2]]}, "not the state of an agreement"),
        ({**STATE, "brier": [1, -1]}, "not the state of an agreement"),
        ({**STATE, "confusion": {"a": 1}}, "not the state of an agreement"),
        ({**STATE, "unanswered": {"a": 1.5}}, "not the state of an agreement"),
    ],
)
def test_what_is_no_state_or_a_newer_one_is_refused(state: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Agreement.from_state(state)


def test_other_bins_are_not_merged() -> None:
    with pytest.raises(ValueError, match="15 bins cannot be merged with 10"):
        Agreement().merge(Agreement(bins=10))
    with pytest.raises(ValueError, match="bins=0"):
        Agreement(bins=0)
