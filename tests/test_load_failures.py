"""tools/load_failures.py: which failed tests are run once more, and which never are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MARKED = (
    "@pytest.mark.load\n@pytest.mark.parametrize('x', ['a b'])\ndef test_busy(x): assert not {}\n"
)
OTHER = "def test_other(): assert not {}\n"


def written(folder: Path, *arguments: str, busy: str, other: str, more: str = "") -> list[str]:
    """Run a file of tests, and return the ids in the file for the second run."""
    test = folder / "test_it.py"
    test.write_text(f"import pytest\n{more}\n{MARKED.format(busy)}\n{OTHER.format(other)}\n")
    file = folder / "again"
    plugins = ("-p", "tools.load_failures", "--load-failures", str(file))
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", f"--rootdir={folder}"]
    subprocess.run([*command, *plugins, *arguments, str(test)], cwd=ROOT, capture_output=True)
    return file.read_text().splitlines()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_failures_that_the_load_can_cause_are_written(tmp_path: Path, workers: str) -> None:
    found = written(tmp_path, "-n", workers, busy="True", other="False")
    assert found == ["test_it.py::test_busy[a b]"]


@pytest.mark.parametrize("busy", ["True", "False"])
def test_nothing_is_run_twice_where_another_test_failed(tmp_path: Path, busy: str) -> None:
    assert written(tmp_path, "-n0", busy=busy, other="True") == []


def test_nothing_is_run_twice_where_all_passed_or_a_file_is_broken(tmp_path: Path) -> None:
    assert written(tmp_path, "-n0", busy="False", other="False") == []
    assert written(tmp_path, "-n0", busy="True", other="False", more="import nothing_of_this") == []
