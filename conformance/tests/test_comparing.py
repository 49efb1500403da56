"""Two reports compared: what differs, what counts as worse, and how it is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core_conformance.running import comparing, report
from core_conformance.running.comparing import Kind
from core_conformance.running.report import Report
from core_conformance.running.result import Result, Status
from core_conformance.running.run import Run
from core_conformance.running.settings import Settings

if TYPE_CHECKING:
    from conformance.tests.conftest import Command

PASSED, FAILED = Status.PASSED, Status.FAILED


@pytest.fixture
def base(toys: Path, tmp_path: Path) -> Report:
    """A report without checks."""
    return replace(report.report_of(Run(Settings("toy", str(tmp_path)))), checks=())


def of(base: Report, *checks: Result, **changes: Any) -> Report:
    return replace(base, checks=checks, **changes)


@pytest.mark.parametrize(
    ("before", "after", "kind", "worse"),
    [
        (Result("x", PASSED), Result("x", FAILED, "why"), Kind.FAILED, True),
        (Result("x", PASSED), Result("x", Status.CRASHED), Kind.FAILED, True),
        (Result("x", PASSED), Result("x", Status.TIMEOUT), Kind.FAILED, True),
        (Result("x", PASSED), Result("x", Status.KNOWN), Kind.FAILED, True),
        (Result("x", PASSED, refused="chat"), Result("x", FAILED), Kind.FAILED, True),
        (Result("x", FAILED), Result("x", PASSED), Kind.MENDED, False),
        (Result("x", Status.KNOWN), Result("x", Status.FIXED), Kind.MENDED, False),
        (Result("x", PASSED), Result("x", PASSED, refused="chat"), Kind.REFUSED, False),
        (Result("x", PASSED, refused="chat"), Result("x", PASSED), Kind.ANSWERED, False),
        (Result("x", PASSED), Result("x", Status.NOT_TESTABLE), Kind.CHANGED, False),
        (Result("x", Status.NOT_RUN), Result("x", FAILED), Kind.CHANGED, False),
        (None, Result("x", FAILED), Kind.NEW, False),
        (Result("x", PASSED), None, Kind.GONE, False),
        (Result("x", PASSED, seconds=0.1), Result("x", PASSED, seconds=0.9), None, False),
    ],
)
def test_the_kind_of_a_difference(
    base: Report, before: Result | None, after: Result | None, kind: Kind | None, worse: bool
) -> None:
    a, b = (of(base, *filter(None, (one,))) for one in (before, after))
    comparison = comparing.compare(a, b)
    kinds = [one.kind for one in comparison.differences if one.name == "x"]
    assert kinds == [kind] * (kind is not None)
    assert comparison.worse is worse


def test_all_that_differs_is_listed(base: Report) -> None:
    suite = replace(base.suite, version="9.9")
    backend = replace(base.backend, capabilities=("chat",), options={"shade": 4})
    slow, slower = Result("slow", PASSED, seconds=1.0), Result("slow", PASSED, seconds=3.0)
    a, b = of(base, slow, seconds=1.0), of(base, slower, seconds=3.0, suite=suite, backend=backend)
    rows = [(one.kind, one.name, one.a, one.b) for one in comparing.compare(a, b).differences]
    assert rows == [
        ("capability", "chat", "-", "declared"),
        ("capability", "generate", "declared", "-"),
        ("run", "suite.version", base.suite.version, "9.9"),
        ("run", "backend.options", "{}", "{'shade': 4}"),
        ("seconds", "all checks", "1.00", "3.00"),
        ("seconds", "slow", "1.00", "3.00"),
    ]


def test_the_same_report_differs_in_nothing(base: Report) -> None:
    comparison = comparing.compare(base, base)
    assert [one.kind for one in comparison.differences] == [Kind.SECONDS]


def test_the_command_compares_what_it_has_written(command: Command) -> None:
    command("toy", "-m", "model", "--report", "a.json")
    command("toy_wrong", "-m", "model", "--report", "b.json")
    worse = command("--compare", "a.json", "b.json")
    assert worse.code == 1
    assert worse.out.splitlines()[:2] == [
        "DIFFERENCE\tNAME\tA\tB\tNOTE",
        "newly failed\ttoy.second\tpassed\tfailed\tfor the prompt 'second' came 'nonsense'; "
        "say what you are told",
    ]
    assert "run\tbackend.name\ttoy\ttoy_wrong\t\n" in worse.out
    assert worse.err.startswith("1 newly failed, ")

    better = command("--compare", "b.json", "a.json", "--json")
    assert better.code == 0
    first = json.loads(better.out)["differences"][0]
    assert (first["kind"], first["name"], first["a"]) == ("mended", "toy.second", "failed")


def test_what_is_no_report_is_named(command: Command, tmp_path: Path) -> None:
    command("toy", "-m", "model", "--report", "a.json")
    for text in ("{}", "[", ""):
        (tmp_path / "b.json").write_text(text)
        done = command("--compare", "a.json", "b.json")
        assert done.code == 2
        assert "b.json cannot be read as a conformance report" in " ".join(done.err.split())
    assert command("--compare", "a.json", "none.json").code == 2
    assert "Remove" in command("toy", "--compare", "a.json", "a.json").err
