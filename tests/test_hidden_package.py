"""A user's own module ``core``, which scripts import in place of the installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import core
import core_hidden

INFER_CLI = ("-P", "-c", "import infer_cli, sys; sys.argv[0] = 'infer-cli'; infer_cli.main()")


def run(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a folder. ``path`` is PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(params=["core.py", "core/__init__.py"])
def hiding(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A module or a package ``core`` that has nothing in it."""
    file = tmp_path / str(request.param)
    file.parent.mkdir(exist_ok=True)
    file.touch()
    return file


def test_the_error_names_the_file_to_a_script_next_to_it(hiding: Path, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import core\nimport core_tasks\n")
    failed = run(tmp_path, "script.py")
    assert failed.returncode == 1
    assert f"ImportError: {hiding} hides the installed package core. Rename it" in failed.stderr


def test_the_command_names_the_file_on_pythonpath(hiding: Path, tmp_path: Path) -> None:
    failed = run(tmp_path, *INFER_CLI, "--version", path=str(tmp_path))
    assert failed.returncode == 1
    assert failed.stderr.startswith(f"Error: {hiding} hides the installed package core. ")
    assert len(failed.stderr.splitlines()) == 1


def test_the_command_runs_next_to_it_and_warns(hiding: Path, tmp_path: Path) -> None:
    done = run(tmp_path, *INFER_CLI, "backends", "--json")
    assert done.returncode == 0
    assert f"Warning: Python scripts in this folder import {hiding} as core" in done.stderr


def test_a_folder_without_init_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    assert core_hidden.hidden_by([str(tmp_path)]) is None
    done = run(tmp_path, "-c", "import core, core_tasks; print(core.__version__)")
    assert done.stdout == f"{core.__version__}\n"


def test_the_checkout_hides_nothing() -> None:
    assert core_hidden.hidden_by() is None
    assert core_hidden.hidden_by([str(Path(core.__file__).parents[1])]) is None


def test_a_compiled_package_is_the_installed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "__file__", f"{core.__file__}c")  # in a frozen program
    core_hidden.check_import()


def test_an_imported_module_hides_even_without_its_file(hiding: Path, tmp_path: Path) -> None:
    code = f"import core, os; os.remove({str(hiding)!r}); import core_tasks"
    failed = run(tmp_path, "-c", code)
    assert f"ImportError: {hiding} hides the installed package core" in failed.stderr


def test_an_imported_package_is_not_hidden_later(hiding: Path, tmp_path: Path) -> None:
    code = (
        f"import core, sys; sys.path.insert(0, {str(tmp_path)!r}); import core_tasks; print('ok')"
    )
    assert run(Path("/"), "-c", code).stdout == "ok\n"
