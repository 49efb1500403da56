"""The whole suite on the reference, as its users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core_conformance.checking.check import all_checks
from core_conformance.reference import write_model


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model"))


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_command_certifies_the_reference(model: str, tmp_path: Path) -> None:
    command = ("conformance", "reference", "-m", model, "--certify", "--json")
    done = run(tmp_path, "-c", "from core_cli import main; main()", *command)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["certified"] is True
    assert [check["id"] for check in report["checks"]] == list(all_checks())
    assert {check["refused"] for check in report["checks"]} <= {"", "trainable", "label_sentences"}


@pytest.mark.slow
def test_pytest_certifies_the_reference(model: str, tmp_path: Path) -> None:
    suite = ("--pyargs", "core_conformance", "--core-backend", "reference", "--core-model", model)
    done = run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", *suite, "--core-certify")
    assert done.returncode == 0, done.stdout
    assert f"{len(all_checks())} of {len(all_checks())} checks passed" in done.stdout
    assert "\ncertified\n" in done.stdout
