"""Fixtures: ``infer-cli conformance`` beside toy backends and three toy checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from core.registry import REGISTRY
from core_cli.app import build
from core_conformance import checks
from core_conformance.checking import check as check_module
from core_conformance.checking.check import Check, all_checks
from core_conformance.reference import Reference
from core_conformance.running.target import know_reference

TOYS = Path(__file__).parent / "toys"


@pytest.fixture
def narrow() -> list[Check]:
    """The checks that neither sweep nor search, a tenth of the suite's time."""
    return [check for check in all_checks().values() if not check.broad]


@pytest.fixture(params=["narrow", pytest.param("all", marks=pytest.mark.slow)])
def suite(request: pytest.FixtureRequest, narrow: list[Check]) -> list[Check]:
    """The checks: by default the narrow ones, in the soaks all of them."""
    return narrow if request.param == "narrow" else list(all_checks().values())


@pytest.fixture(autouse=True)
def _reference_is_known() -> Iterator[None]:
    """As in every run of the suite, and to no test elsewhere."""
    know_reference()
    yield
    REGISTRY._registered.pop(Reference.name, None)


class Finished(NamedTuple):
    """How a process ended."""

    code: int
    out: str
    err: str

    @property
    def statuses(self) -> dict[str, str]:
        """The status of each check, from the tab-separated lines on stdout."""
        return dict(line.split("\t")[:2] for line in self.out.splitlines()[1:])

    @property
    def report(self) -> Any:
        """The JSON on stdout."""
        return json.loads(self.out)


Command = Callable[..., Finished]


@pytest.fixture(autouse=True)
def the_session_keeps_its_exit_status(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What ends a process hard, for what hangs in it, would do so to this one at its end."""
    called: list[int] = []
    for module in ("command", "pytest_session"):
        monkeypatch.setattr(f"core_conformance.front.{module}.end_with", called.append)
    yield
    assert called == [], "run this in a process of its own"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the toys: this process and its children find their backends and checks."""
    path = os.pathsep.join(filter(None, (str(TOYS), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.delenv("INFER_MODEL", raising=False)
    monkeypatch.delenv("INFER_RAISE_ERRORS", raising=False)
    monkeypatch.syspath_prepend(str(TOYS))
    monkeypatch.setattr(checks, "__path__", [str(TOYS / "checks")])
    monkeypatch.setattr(check_module, "_checks", {})
    monkeypatch.delitem(sys.modules, "core_conformance.checks.toy", raising=False)
    all_checks.cache_clear()
    yield TOYS
    all_checks.cache_clear()


@pytest.fixture
def command(toys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """``infer-cli conformance`` with these arguments, in a folder with nothing but a ``model``.

    ``alone``: in a process of its own, for what would harm this one.
    """
    (tmp_path / "model").touch()
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, alone: bool = False) -> Finished:
        if not alone:
            done = CliRunner().invoke(build(), ["conformance", *arguments])
            return Finished(done.exit_code, done.stdout, done.stderr)
        code = "from core_cli import main; main()"
        ended = subprocess.run(
            [sys.executable, "-c", code, "conformance", *arguments],
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Finished(ended.returncode, ended.stdout, ended.stderr)

    return run
