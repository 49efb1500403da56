"""Chance labels are reported by `FewShot` as chance, also where texts repeat."""

from __future__ import annotations

from statistics import mean

import pytest

from benchmarks.chance_labels import Case, draw, markdown


@pytest.mark.parametrize("case", [Case(24, 3), Case(20, 2, times=3)], ids=lambda case: case.name)
def test_chance_labels_are_reported_as_chance(case: Case) -> None:
    found = [draw(case, seed) for seed in range(6)]
    assert abs(mean(each.reported for each in found) - 1 / case.labels) < 0.15
    assert abs(mean(each.on_new_texts for each in found) - 1 / case.labels) < 0.1
    assert mean(each.best_trial for each in found) > mean(each.reported for each in found) + 0.1


def test_the_table_has_a_line_for_each_case() -> None:
    told = markdown([Case(8, 2), Case(6, 2, times=2)], 1).splitlines()
    assert len(told) == 4
    assert told[3].startswith("| 6 texts, each 2 times, 2 labels | ")
