"""Fixtures for every test of the workspace: the two real models, made once per machine."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

try:
    from hypothesis import settings
except ImportError:  # with an editable install, others' conformance tests read this file as well
    pass
else:
    # A busy machine is no failure, and in CI the examples are the same in every run.
    settings.register_profile("core", deadline=None, derandomize="CI" in os.environ)
    settings.load_profile("core")

_FETCH = Path(__file__).parent / "tools" / "fetch_models.py"


@pytest.fixture(scope="session")
def smollm2_dir() -> Path:
    """SmolLM2-135M-Instruct as converted to float32 safetensors."""
    return _fetched("smollm2-135m-instruct", "directory")


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, the Q4_1 GGUF file it was converted from."""
    return _fetched("smollm2-135m-instruct", "gguf")


@pytest.fixture(scope="session")
def gemma3_dir() -> Path:
    """Gemma-3-270M (base) as converted to float32 safetensors."""
    return _fetched("gemma-3-270m", "directory")


@pytest.fixture(scope="session")
def gemma3_gguf() -> Path:
    """Gemma-3-270M (base), the Q4_K_M GGUF file it was converted from."""
    return _fetched("gemma-3-270m", "gguf")


@pytest.fixture
def certify(tmp_path: Path) -> Callable[[str, Path], set[str]]:
    """Runs the conformance suite as a backend's author does: certified, with no known failures.

    Returns the capabilities that the backend declares.
    """

    def run(backend: str, model: Path) -> set[str]:
        file = tmp_path / "report.json"
        code = "from core.cli import main; main()"
        arguments = ("conformance", backend, "-m", str(model), "--certify", "--report", str(file))
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True)
        assert done.returncode == 0, (done.stdout + done.stderr).decode()
        report = json.loads(file.read_text())
        assert report["certified"] is True
        declared = set(report["backend"]["capabilities"])
        refused = {check["refused"] for check in report["checks"]} - {""}
        assert not refused & declared
        return declared

    return run


def _fetched(name: str, kind: str) -> Path:
    try:
        return Path(_paths(name)[kind])
    except subprocess.CalledProcessError as error:
        pytest.fail(
            f"The model {name} is not here and could not be made: {error.stderr.strip()}\n"
            f"Run `make models`, or: {sys.executable} {_FETCH} {name}",
            pytrace=False,
        )


@functools.cache
def _paths(name: str) -> dict[str, str]:
    # In a process of its own, where mlx may be imported without harm to a later test.
    command = [sys.executable, str(_FETCH), "--json", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found[name]
