"""A query of Daft's on Ray, with a model in processes of Ray's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.testing import write_model

FRAGILE = Path(__file__).parents[2] / "ray" / "tests" / "fragile_backend"
PROGRAM = """
import sys
import daft, ray
from daft.functions import classify_text
from core_daft import CoreProvider

ray.init(num_cpus=2, include_dashboard=False, object_store_memory=80 * 2**20)
daft.set_runner_ray()
texts = [f"{n} {'good bad'.split()[n % 2]}" for n in range(100)]
frame = daft.from_pydict({"n": [*range(100)], "text": texts})
provider = CoreProvider(sys.argv[1], backend="fragile", concurrency=1)
label = classify_text(daft.col("text"), ["good", "bad"], provider=provider)
made = frame.into_partitions(4).with_column("label", label).sort("n").to_pydict()
assert made["n"] == [*range(100)]
assert made["label"] == ["good", "bad"] * 50, made
print("labelled")
"""


@pytest.mark.slow
def test_a_query_on_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("PYTHONPATH", str(FRAGILE))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    model = str(write_model(tmp_path / "model"))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, model], capture_output=True, text=True, timeout=550
    )
    assert done.stdout.splitlines()[-1:] == ["labelled"], done.stderr[-4000:]
