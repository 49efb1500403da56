"""How much padding a GPU runs: the benchmarks' workloads, divided by the real scheduler."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.padding import Row, calls, simulated, tokenised

AIMS = {"a": 1.08, "b": 1.08, "c": 1.08, "d": 1.2}
LOGITS = 36  # tokens that weigh as much as the logits of a row of Gemma-3-1B
CUDNN = 128  # heads whose shapes are planned


@pytest.fixture(scope="module")
def workloads(gemma3_dir: Path) -> dict[str, list[Row]]:
    return {name: tokenised(gemma3_dir, name, 1024 if name == "d" else 4096) for name in AIMS}


@pytest.fixture(autouse=True)
def on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Linux")


@pytest.mark.parametrize("row_tokens", [1, LOGITS], ids=["labels_only", "logits"])
def test_heads_without_plans_run_little_padding(
    workloads: dict[str, Sequence[Row]], row_tokens: int
) -> None:
    found = {name: simulated(rows, 256, row_tokens=row_tokens) for name, rows in workloads.items()}
    assert all(found[name].ratio <= aim for name, aim in AIMS.items())


def test_heads_with_plans_run_less_padding_in_fewer_shapes(
    workloads: dict[str, Sequence[Row]],
) -> None:
    before = {name: simulated(rows, CUDNN, before=True) for name, rows in workloads.items()}
    now = {name: simulated(rows, CUDNN) for name, rows in workloads.items()}
    assert all(now[name].ratio < 0.95 * before[name].ratio for name in AIMS)
    assert all(now[name].ratio <= 1.2 for name in "abc")
    assert now["d"].ratio <= 1.5
    shapes = [sum(len(each.shapes) for each in found.values()) for found in (now, before)]
    assert shapes[0] < shapes[1]


def test_calls_of_different_sizes_share_their_shapes(workloads: dict[str, Sequence[Row]]) -> None:
    now, before = (calls(workloads["c"], CUDNN, 40, before=before) for before in (False, True))
    assert len(before.shapes) == 40
    assert len(now.shapes) <= 10
