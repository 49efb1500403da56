"""The table of levels: its sets are as they are described, its figures those of their rows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.label_parts import levels, table
from benchmarks.label_parts.answers import Replies, States
from benchmarks.label_parts.sets import LabelledSet, load_sets
from core_learn.fewshot import PROBES
from core_tasks.calibration import quality

ROOT = Path(__file__).parents[1]
SETS = load_sets([])
HELD = {"topics": 200, "sentiment": 500, "tickets": 200}


@pytest.mark.parametrize("of", SETS, ids=lambda of: of.name)
def test_a_set_is_balanced_and_has_each_text_once(of: LabelledSet) -> None:
    assert len(of.templates) >= 4
    assert len(set(of.texts)) == len(of.texts) == len(of.gold)
    assert len({*Counter(of.gold).values()}) == 1
    assert (len(of.fitting), len(of.evaluation)) == (100, HELD[of.name])
    assert sorted(of.fitting + of.evaluation) == [*range(len(of.texts))]
    sizes = Counter(of.gold[row] for row in of.fitting).values()
    assert max(sizes) - min(sizes) <= 1
    shown = (ROOT / "examples" / "headlines.jsonl").read_text().splitlines()
    assert not {json.loads(line)["text"] for line in shown} & set(of.texts)


def small() -> tuple[LabelledSet, Replies]:
    """Forty rows of two labels that a prompt prefers the first of, and their texts mostly tell."""
    draw = np.random.default_rng(0)
    gold = [n % 2 for n in range(40)]
    logits = [0.6 + (1 - 2 * label) * draw.normal(1.0, 1.0) for label in gold]
    rows = [[-np.log1p(np.exp(-x)), -np.log1p(np.exp(x))] for x in logits]
    of = LabelledSet(
        "x", ("a", "b"), {}, [f"{n}" for n in gold], gold, [*range(20)], [*range(20, 40)]
    )
    prior = [float(value) for value in rows[0]]
    told = [[-0.1, -3.0], [-3.0, -0.1]]
    return of, Replies([[float(v) for v in row] for row in rows], [prior], told, prior, 0.1, 2.0)


def test_a_cell_has_every_level_on_the_rows_held_out() -> None:
    of, said = small()
    found = levels.cell(said, of)
    assert {name.split()[0] for name in found["levels"]} == {"raw", "L0", "L1"}
    raw = quality(said.rows[20:], of.gold[20:])
    assert found["levels"]["raw"]["accuracy"] == raw.accuracy
    assert found["levels"]["raw"]["calibration_error"] == raw.calibration_error
    low, high = found["levels"]["raw"]["calibration_error_interval"]
    assert 0 <= low < high
    beside = found["default_beside_raw"]
    default = found["levels"][levels.DEFAULT]
    assert beside["accuracy"] == pytest.approx(default["accuracy"] - raw.accuracy)
    low, high = beside["squared_calibration_error_interval"]
    assert low < beside["squared_calibration_error"] < high


def test_a_held_out_row_decides_nothing() -> None:
    of, said = small()
    other = Replies([*said.rows[:20], *said.rows[:19:-1]], *_rest(said))
    for name, adjust in levels.adjustments(said, of).items():
        assert adjust([-1.0, -0.5]) == levels.adjustments(other, of)[name]([-1.0, -0.5])


def _rest(said: Replies) -> tuple[Any, ...]:
    return said.content_free, said.named, said.without_text, said.label_mass, said.seconds


def test_the_calibration_error_is_that_of_core() -> None:
    draw = np.random.default_rng(1)
    shares, gold = draw.dirichlet((1, 1, 1), 300), draw.integers(0, 3, 300)
    wanted = quality(np.log(shares).tolist(), gold.tolist()).calibration_error
    gaps = levels.Gaps.of(shares, gold)
    assert np.sqrt(gaps.squared()) == pytest.approx(wanted, abs=1e-6)
    # To the rows of the resamples, the plug-in figure of all rows is the true error.
    assert gaps.resampled().mean() == pytest.approx(gaps.plug_in(), abs=0.003)
    assert gaps.plug_in() > gaps.squared() + 0.005


def test_an_interval_of_a_difference_holds_it_in_95_percent_of_the_sets() -> None:
    """The one is 0.1 too sure, the other 0.1 too modest; their squared errors are equal."""
    draw, inside, runs = np.random.default_rng(5), 0, 50
    for _ in range(runs):
        true = draw.uniform(0.6, 0.9, 200)
        gold = (draw.random(200) >= true).astype(int)
        one, other = (np.stack([each, 1 - each], 1) for each in (true + 0.09, true - 0.09))
        low, high = levels.beside(one, other, gold)["squared_calibration_error_interval"]
        inside += low <= 0.0 <= high
    assert inside >= 43  # of 50 at 95 %, fewer are drawn once in 250 times


def test_heads_learn_from_kept_states() -> None:
    draw = np.random.default_rng(2)
    gold = [n % 2 for n in range(60)]
    of = LabelledSet(
        "x", ("a", "b"), {}, [f"t{n}" for n in range(60)], gold, [*range(40)], [*range(40, 60)]
    )
    rows = draw.normal(size=(60 + len(PROBES), 8))
    rows[:60, 0] += np.where(np.array(gold) == 0, 3.0, -3.0)
    found = levels.head_figures(States({4: rows.astype(np.float32)}, 4), of)
    assert [*found] == ["L2 of 4", "L2 of 8", "L2 of 16"]
    assert all(each["accuracy"] > 0.9 for each in found.values())
    drawn = [*levels.draws(of, 4)]
    assert len(drawn) == 20
    assert all(set(each) <= set(of.fitting) for each in drawn)


def test_the_table_has_a_line_for_each_cell() -> None:
    of, said = small()
    subject = {"model": "smollm2", "backend": "mlx_cpu", "set": "sentiment"}
    cell: dict[str, Any] = {**subject, "template": "bare", **levels.cell(said, of)}
    head: dict[str, Any] = {
        **subject,
        "levels": {f"L2 of {n}": cell["levels"]["raw"] for n in levels.SIZES},
    }
    told = table.markdown({"cells": [cell], "heads": [head]})
    assert "| smollm2 mlx_cpu sentiment bare | 0.100 |" in told
    assert "SmolLM2-135M-Instruct, mlx_cpu, sentiment" in told
    assert "L0 content-free compared with raw, in 1 cells" in told
    assert "calibration error, of 1 cells" in told
    for level in (*cell["levels"].values(), *head["levels"].values()):
        level.pop("calibration_error", None)
    without = table.markdown({"cells": [cell], "heads": [head]})
    assert "calibration error, of" not in without


def test_the_page_has_the_recorded_figures() -> None:
    results = ROOT / "benchmarks" / "results"
    figures = json.loads((results / "labels.json").read_text())
    page = (ROOT / "docs" / "levels.md").read_text()
    assert table.means(figures["cells"], figures["heads"]) in page
    assert table.verdict(figures["cells"]) in page
    assert (ROOT / "benchmarks" / "results" / "labels.md").read_text() == table.markdown(
        figures
    ) + "\n"
