"""Two evaluations beside each other."""

from __future__ import annotations

from typing import Any

import pytest

from core import EvaluationError
from core_tasks.evaluation import compare


def record(prediction: str, sureness: float | None = None, gold: str = "a") -> dict[str, Any]:
    fields = {"gold": gold, "prediction": prediction, "right": prediction == gold, "error": None}
    if sureness is None:
        return {**fields, "sureness": None}
    others = {"a", "b"} - {prediction}
    shares = {prediction: sureness, others.pop(): 1 - sureness}
    return {**fields, "sureness": sureness, "probabilities": shares}


def named(*records: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(f"line {n}", item) for n, item in enumerate(records, 1)]


def test_flips_and_their_test() -> None:
    first = named(*(record("a", 0.9) for _ in range(8)))
    second = named(*(record("b" if n < 6 else "a", 0.6 + n / 100) for n in range(8)))
    comparison = compare(first, second)
    assert (comparison.items, comparison.same, comparison.agreement) == (8, 2, 0.25)
    assert (comparison.first_alone, comparison.second_alone) == (6, 0)
    assert comparison.p_value == pytest.approx(2 / 2**6)
    assert [flip.name for flip in comparison.flips] == [f"line {n}" for n in range(1, 7)]
    assert comparison.largest_difference == pytest.approx(0.9 - 0.35)
    assert comparison.largest_at == "line 6"
    content = comparison.to_dict()
    assert content["flips"][0]["second"] == {"prediction": "b", "right": False, "sureness": 0.6}
    assert content["first"]["brier"] == pytest.approx(0.02, abs=1e-8)
    assert content["second"]["accuracy"] == 0.25


def test_texts_have_no_probabilities_to_differ() -> None:
    comparison = compare(named(record("a")), named(record("b")))
    assert comparison.largest_difference is None
    assert comparison.flips[0].sureness == 0.0


def test_items_that_failed_are_left_out() -> None:
    failed = {**record("a"), "right": None, "error": {"type": "E", "message": "m"}}
    comparison = compare(named(failed, record("a")), named(record("a"), record("a")))
    assert (comparison.items, comparison.failed, comparison.agreement) == (1, 1, 1.0)


@pytest.mark.parametrize(
    "second",
    [named(record("a")), named(record("a"), record("a", gold="b")), [("x", record("a"))] * 2],
)
def test_other_items_are_refused(second: Any) -> None:
    with pytest.raises(EvaluationError, match=r"more items than|not the same items"):
        compare(named(record("a"), record("a")), second)
