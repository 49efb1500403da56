"""Several right labels a row: how fields name them, and what is told of the labels found."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

import core_tasks
from core_cli.jobs.gold import ManyGold
from core_cli.reading.row import Row
from core_cli.rows.gold_labels import labels_in

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

LABELS = ("law", "money", "war and peace")
SETS = st.lists(st.sets(st.sampled_from(LABELS)), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (["law", "money"], {"law", "money"}),
        ('["law", "money"]', {"law", "money"}),
        ("law;money", {"law", "money"}),
        ("law | money", {"law", "money"}),
        ("law, money,", {"law", "money"}),
        ("war and peace", {"war and peace"}),
        ("a, b", {"a, b"}),
        ("[a", {"[a"}),
        ("", set()),
        ([], set()),
        (5, {"5"}),
        (None, None),
    ],
)
def test_a_field_names_labels(value: object, found: set[str] | None) -> None:
    assert labels_in(value, (*LABELS, "a, b")) == found


def compared(golds: list[set[str]], found: list[set[str]]) -> ManyGold:
    """Rows with these right labels, and these answers."""
    gold = ManyGold("gold", LABELS)
    rows: list[Any] = [Row(1, fields={"gold": sorted(each)}) for each in golds]
    gold.add(rows, [{"labels": sorted(each), "error": None} for each in found])
    return gold


@given(st.data(), SETS)
def test_the_figures_are_those_of_scikit_learn(data: st.DataObject, golds: list[set[str]]) -> None:
    sets = st.sets(st.sampled_from(LABELS))
    found = [data.draw(sets) for _ in golds]
    told = compared(golds, found).to_dict()
    right, given = (np.array([[label in s for label in LABELS] for s in x]) for x in (golds, found))
    for average in ("micro", "macro"):
        wanted = f1_score(right, given, average=average, zero_division=0.0)
        assert told[f"{average}_f1"] == pytest.approx(wanted, abs=1e-12)
    assert told["exact"] == pytest.approx((right == given).all(axis=1).mean())


def test_rows_without_labels_to_compare_with_do_not_count() -> None:
    gold = ManyGold("gold", LABELS)
    rows: list[Any] = [Row(1, fields=f) for f in ({}, {"gold": "law"}, {"gold": ""})]
    failed: dict[str, object] = {"labels": [], "error": {"type": "RequestError", "message": "no"}}
    gold.add(rows, [failed, failed, {"labels": [], "error": None}])
    assert (gold.missing, gold.failed, gold.rows, gold.exact) == (1, 1, 1, 1)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_job_of_many_labels_tells_how_many_are_right_after_a_resume_too(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, form: str
) -> None:
    task = core_tasks.Task("{text} is {label}?", ("a", "b"), mode="many")
    task.save(tmp_path / "task.toml")
    rows, out, report = (tmp_path / name for name in ("rows.jsonl", f"out.{form}", "report.json"))
    lines = [json.dumps({"text": f"{n} ", "gold": ["a", "b"][: n % 3]}) for n in range(300)]
    rows.write_text("\n".join(lines))
    flags: tuple[str | Path, ...] = ("-m", fake_model, "--backend", "fake")
    flags += ("--task", tmp_path / "task.toml", "-i", rows, "--gold", "gold", "--report", report)

    done = infer_cli("classify", *flags, "-o", out)
    assert done.exit_code == 0, done.output
    assert "exact match: " in done.stderr
    whole, first = out.read_bytes(), json.loads(report.read_text())
    assert first["gold"]["rows"] == 300
    assert sum(label["rows"] for label in first["labels"].values()) > 0

    # Of the first two blocks, a job that goes on knows no more than what was written.
    journal = out.with_name(f"{out.name}.journal")
    head, *blocks = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(head + b"".join(blocks[:2]))
    os.truncate(out, json.loads(blocks[1])["end"])
    assert infer_cli("classify", *flags, "-o", out, "--resume").exit_code == 0
    assert out.read_bytes() == whole
    again = json.loads(report.read_text())
    assert (again["gold"], again["labels"]) == (first["gold"], first["labels"])


def test_a_plot_is_of_one_label_a_row(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    core_tasks.Task("{text} is {label}?", ("a", "b"), mode="many").save(tmp_path / "task.toml")
    flags = ("-m", fake_model, "--backend", "fake", "--task", tmp_path / "task.toml", "--gold", "g")
    refused = infer_cli("classify", *flags, "--plot", tmp_path / "x.svg", "some text")
    assert refused.exit_code == 2
    assert "--plot supports one label per row" in refused.output
