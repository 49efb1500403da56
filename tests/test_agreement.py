"""`core.agreement`: figures worked out by hand, and relations that always hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.agreement import Agreement

LABELS = st.sampled_from("abc")


def counted(*rows: tuple[str, str | None, float | None]) -> Agreement:
    agreement = Agreement()
    for row in rows:
        agreement.add(*row)
    return agreement


def test_figures_worked_out_by_hand() -> None:
    # 4 of 6 right; a: 3 rows, 2 found, 3 chosen; b: 2 rows, 1 found, 2 chosen; c: 1 row, found.
    found = counted(
        *(("a", "a", 0.9), ("a", "a", 0.9), ("a", "b", 0.6), ("b", "b", 0.8), ("b", "a", 0.5)),
        *(("c", "c", 1.0), ("a", None, None)),
    )
    assert (found.rows, found.right) == (6, 4)
    assert found.accuracy == pytest.approx(4 / 6)
    assert found.coverage == pytest.approx(6 / 7)
    labels = found.labels()
    assert [labels["a"].precision, labels["a"].recall] == pytest.approx([2 / 3, 2 / 3])
    assert (labels["b"].precision, labels["b"].recall, labels["b"].f1) == (0.5, 0.5, 0.5)
    assert (labels["c"].f1, labels["c"].rows) == (1.0, 1)
    assert found.macro_f1() == pytest.approx((2 / 3 + 0.5 + 1) / 3)
    assert found.confusion() == {"a": {"a": 2, "b": 1}, "b": {"a": 1, "b": 1}, "c": {"c": 1}}
    # Bins: two of 0.9 (both right), 0.6 (wrong), 0.8 (right), 0.5 (wrong), 1.0 (right).
    assert found.calibration_error() == pytest.approx((0.2 + 0.6 + 0.2 + 0.5 + 0.0) / 6)
    # Wilson's interval of 4 in 6, as statsmodels' proportion_confint(4, 6, method="wilson") has it.
    assert list(found.interval() or ()) == pytest.approx([0.29999, 0.90323], abs=1e-4)


def test_nothing_counted_is_nothing_claimed() -> None:
    found = Agreement()
    assert (found.accuracy, found.interval(), found.macro_f1(), found.coverage) == (None,) * 4
    assert found.calibration_error() is None
    json.dumps(found.to_dict())


@given(st.lists(st.tuples(LABELS, LABELS | st.none(), st.floats(0, 1)), min_size=1))
def test_relations(rows: list[tuple[str, str | None, float]]) -> None:
    found = counted(*rows)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.rows + found.unanswered.total() == len(rows)
    assert sum(place.rows for place in found.bins) == found.rows
    assert sum(sum(row.values()) for row in found.confusion().values()) == found.rows
    if found.accuracy is not None:
        low, high = found.interval() or (1, 0)
        assert 0 <= low <= found.accuracy <= high <= 1
        weighted = sum(label.recall * label.rows for label in found.labels().values())
        assert weighted == pytest.approx(found.right)
    assert 0 <= (found.calibration_error() or 0) <= 1
