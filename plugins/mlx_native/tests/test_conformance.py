"""The conformance suite on the real models, as a third party would run it: certified, no known
failures, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core_conformance.registry import all_checks
from core_mlx_native.capabilities import BACKEND_CAPABILITIES


@pytest.mark.parametrize(
    "model", ["smollm2_dir", pytest.param("gemma3_dir", marks=pytest.mark.slow)]
)
def test_mlx_cpu_is_certified(model: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    path: Path = request.getfixturevalue(model)
    file = tmp_path / "report.json"
    arguments = ("conformance", "mlx_cpu", "-m", path, "--certify", "--report", file)
    code = "from core.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(file.read_text())
    assert report["certified"] is True
    assert {check["id"] for check in report["checks"]} == set(all_checks())
    refused = {check["refused"] for check in report["checks"]} - {""}
    declared = {capability.value for capability in BACKEND_CAPABILITIES}
    assert set(report["backend"]["capabilities"]) == declared
    assert not refused & declared
