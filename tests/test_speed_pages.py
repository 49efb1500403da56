"""docs/speed.md and docs/choosing.md show the recorded measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import agreement, choosing, machine
from benchmarks.classify_parts import report
from benchmarks.classify_parts.contestants import OURS, PEERS
from benchmarks.classify_parts.measuring import Result
from benchmarks.encoder_parts import tables
from benchmarks.label_parts.sets import load_sets

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
# Those that keep the instruction between calls, and llama.cpp's faster files.
OTHER_PEERS = (
    "mlx_lm prefix cached",
    "transformers",
    "llama_cpp loop",
    "llama_cpp loop Q8_0",
    "llama_cpp loop Q4_0",
)


def recorded(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def page(name: str) -> str:
    return (ROOT / "docs" / f"{name}.md").read_text("utf-8")


def test_the_speeds_are_the_recorded_ones() -> None:
    """``python -m benchmarks.classify_parts.report`` prints the table of such a file."""
    written = recorded("classify")
    results = [Result(**row) for row in written["results"]]
    peers = [peer for peer in PEERS if any(row.contestant == peer for row in results)]
    assert report.markdown(results, OURS, peers) in page("speed")
    assert machine.caption(written["machine"]) in page("speed")


@pytest.mark.parametrize(
    "name", ["classify_cpu", "classify_peers", "classify_export", "classify_avx512"]
)
def test_so_are_the_cpu_times_of_every_engine(name: str) -> None:
    """``python -m benchmarks.classify_parts.report --cpu`` prints the table of such a file."""
    written = recorded(name)
    results = [Result(**row) for row in written["results"]]
    assert report.cpu_markdown(results, OURS) in page("speed")
    assert machine.caption(written["machine"]) in page("speed")


def test_so_is_the_agreement_of_labels() -> None:
    """``python benchmarks/agreement.py --table`` prints the table of such a file."""
    assert agreement.table([recorded("agreement")]) in page("speed")


def test_so_are_the_cpu_times_of_decoding() -> None:
    """``python -m benchmarks.classify_parts.report --cpu`` prints this table, too."""
    assert report.decode_cpu_markdown(recorded("decode_avx512")) in page("speed")


def test_so_are_those_of_calls_as_users_make_them() -> None:
    written = recorded("classify_repeated")
    results = [Result(**row) for row in written["results"]]
    assert report.markdown(results, OURS, OTHER_PEERS) in page("speed")
    assert machine.caption(written["machine"]) in page("speed")


def test_so_are_the_figures_of_the_encoder() -> None:
    """``python benchmarks/encoder.py`` prints these tables."""
    written = recorded("encoder")
    assert tables.peers(written) in page("speed")
    assert tables.told(tables.goals(written["contestants"])) in page("speed")
    assert tables.sentences(written) in page("levels")
    assert machine.caption(written["machine"]) in page("speed")


def test_the_accuracies_of_methods_are_the_recorded_ones() -> None:
    table = choosing.table(recorded("labels"), recorded("encoder"), recorded("choosing"))
    assert table in page("choosing")
    readme = (ROOT / "README.md").read_text("utf-8")
    first = [line for line in readme.partition("## Install")[0].splitlines() if line[:1] == "|"]
    assert len(first) > 5
    assert set(first) <= set(table.splitlines())


def test_the_baseline_learns_from_the_rows_of_the_heads() -> None:
    [of] = load_sets(["sentiment"])
    accuracy = choosing.ngram_accuracies(of)
    assert accuracy == pytest.approx(recorded("choosing")["accuracy"]["sentiment"], abs=0.01)
