"""The visit to a GPU: parts are joined, steps that fail stop no other, and none runs twice."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest

from benchmarks import gpu_visit
from benchmarks.gpu_visit import Place, Step


def test_parts_are_joined_when_the_last_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_visit.subprocess, "run", lambda *_, **__: None)  # type: ignore[attr-defined]
    (tmp_path / "model").write_bytes(bytes(range(256)) * 40)
    with tarfile.open(tmp_path / "whole", "w:gz") as archive:
        archive.add(tmp_path / "model", "core/model")
    whole, store = (tmp_path / "whole").read_bytes(), tmp_path / "store"
    half = len(whole) // 2
    for number, piece in enumerate((whole[:half], whole[half:])):
        part = tmp_path / f"part.0{number}"
        part.write_bytes(piece)
        gpu_visit.unpack(part, store)
        assert [*store.glob("part.*")] == ([] if number else [store / "part.00"])
    assert (store / "core" / "model").read_bytes() == (tmp_path / "model").read_bytes()


def test_a_step_that_fails_stops_no_other_and_none_runs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(name: str, code: str) -> Step:
        return Step(name, 1, lambda place: [sys.executable, "-c", code])

    ran = f"open({str(tmp_path / 'ran')!r}, 'a').write('x')"
    monkeypatch.setattr(gpu_visit, "STEPS", (step("a", "raise SystemExit(7)"), step("b", ran)))
    place = Place(tmp_path / "store", tmp_path / "results", "mlx_cpu", True)
    assert gpu_visit.run(place, minutes=0.1) == 3  # too little for a step
    assert [gpu_visit.run(place, minutes=2) for _ in range(2)] == [1, 1]
    told = [json.loads(line) for line in (place.results / "steps.jsonl").read_text().splitlines()]
    assert [(each["name"], each["status"]) for each in told] == [("a", 7), ("b", 0)]
    assert (tmp_path / "ran").read_text() == "x"
