"""``import core`` is cheap: it loads itself and nothing else, and never leaves the library."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import core

ROOT = Path(core.__file__).parents[1]


def run(code: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that sees the standard library and this `core`."""
    start = f"import sys; sys.path.insert(0, {str(ROOT)!r}); "
    # -I: no environment, no user site; -S: no site-packages, so no .pth file imports anything.
    command = [sys.executable, "-I", "-S", *flags, "-c", start + code]
    return subprocess.run(command, check=True, capture_output=True, text=True)


def imported(report: str) -> list[str]:
    """Module names in what ``-X importtime`` wrote."""
    lines = [line for line in report.splitlines() if line.startswith("import time:")]
    return [line.rsplit("|", 1)[1].strip() for line in lines[1:]]  # the first is the heading


def test_import_core_loads_the_standard_library_at_most() -> None:
    names = imported(run("import core", "-X", "importtime").stderr)
    assert "core" in names
    foreign = {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"core"}
    assert foreign == set()


def test_import_core_loads_none_of_its_own_modules() -> None:
    names = imported(run("import core", "-X", "importtime").stderr)
    assert [name for name in names if name.startswith("core.")] == []


def test_import_core_loads_nothing_heavy() -> None:
    bare = set(imported(run("pass", "-X", "importtime").stderr))
    added = set(imported(run("import core", "-X", "importtime").stderr)) - bare
    assert added.isdisjoint({"dataclasses", "importlib.metadata", "inspect", "json"})


def test_all_public_names_need_the_standard_library_only() -> None:
    code = (
        "import core, json; [getattr(core, name) for name in core.__all__]; core.backends(); "
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    loaded = set(json.loads(run(code).stdout))
    assert loaded - sys.stdlib_module_names <= {"core", "__main__"}


def test_listing_metadata_waits_until_it_is_asked_for() -> None:
    code = "import core; core.load_model; core.discover; print('importlib.metadata' in sys.modules)"
    assert run(code).stdout.strip() == "False"


def test_without_the_command_line_infer_cli_says_how_to_install_it() -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        run("from core.__main__ import main; main()")
    assert failed.value.returncode == 1
    assert "infer-cli is not installed. Install it with: pip install" in failed.value.stderr


def test_without_the_command_line_there_is_a_version() -> None:
    done = run("sys.argv[1:] = ['--version']; from core.__main__ import main; main()")
    assert done.stdout == f"core, version {core.__version__}\n"
