"""benchmarks/heads.py: its splits, its figures, and a run on a fake model."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import heads
from core.testing import FakeModel

ROWS = heads.rows_of("examples/headlines.jsonl")


def test_a_split_learns_from_four_of_each_label_and_judges_the_others() -> None:
    learned, judged = heads.split(ROWS, 7)
    assert {*Counter(row["label"] for row in learned).values()} == {4}
    assert (len(learned), len(judged)) == (16, 56)
    assert not {row["text"] for row in learned} & {row["text"] for row in judged}
    assert heads.split(ROWS, 7) == (learned, judged)
    assert heads.split(ROWS, 8)[0] != learned


def test_arbitrary_names_stand_for_one_label_each_in_another_order() -> None:
    pairs = {
        (row["label"], other["label"]) for row, other in zip(ROWS, heads.renamed(ROWS), strict=True)
    }
    assert len(pairs) == 4
    ours = [name for _, name in sorted(pairs)]
    assert sorted(ours) == sorted(heads.ARBITRARY)
    assert ours != sorted(ours)


def test_known_states_are_computed_once() -> None:
    model = FakeModel()
    known = heads.Known(model)
    first = known.hidden_states(["a", "b", "a"], layers=(0, 1))
    assert known.hidden_states(["b"], layers=(0, 1)) == [first[1]]
    assert first == model.hidden_states(["a", "b", "a"], layers=(0, 1))
    assert [call.prompts for call in model.calls] == [("a", "b"), ("a", "b", "a")]


def test_figures_of_a_fake_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "SPLITS", 2)
    model = FakeModel()
    figures = {**heads.costs(model, 3), **heads.fits(model, 2), **heads.accuracies(model)}
    assert all(value > 0 for value in figures.values())
    assert 0.25 < figures["right"] <= 1.0  # better than a guess of four
    assert figures["right_least"] <= figures["right"]
    assert figures["fit_s"] <= figures["fit_s_most"]
