"""The harness of the attacks bites: each case that misbehaves is caught, and the others are not."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .batch import HERE, Report, run
from .misbehaving import CASES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc what a process holds")

PATIENCE = 5.0  # of one case of microseconds; the one that hangs takes this long


def test_each_case_that_misbehaves_is_named() -> None:
    report = run("misbehaving", len(CASES), patience=PATIENCE)
    names = list(CASES)
    found = [
        (finding.kind, "of all" if finding.case is None else names[finding.case])
        for finding in report.findings
    ]
    assert found == [
        ("death", "death"),
        ("death", "death by exit"),
        ("foreign", "foreign"),
        ("foreign", "foreign, raised"),
        ("foreign", "foreign, of a row"),
        ("foreign", "foreign, without a message"),
        ("foreign", "foreign, ignored"),
        ("leak", "leak of a thread"),
        ("leak", "leak of a descriptor"),
        ("leak", "leak of a process"),
        ("memory", "memory"),
        ("hang", "hang"),
        ("leak", "of all"),
    ], report
    assert report.outcomes["InvalidModelError"] == 2


def test_a_finding_says_what_it_is_and_how_to_see_it_alone() -> None:
    report = run("misbehaving", 1, first=list(CASES).index("foreign"))
    (finding,) = report.findings
    assert "TypeError: object of type 'NoneType' has no len()" in str(finding)
    *_, attack, case = str(finding).splitlines()[1].split()
    alone = [sys.executable, "-m", "attacks.child", attack, case]
    done = subprocess.run(alone, cwd=HERE.parent, capture_output=True, text=True)
    assert done.returncode == 1
    assert "object of type 'NoneType' has no len()" in done.stdout


def test_an_attack_that_cannot_begin_is_a_finding() -> None:
    report: Report = run("nowhere", 3)
    (finding,) = report.findings
    assert (finding.kind, finding.case) == ("death", None)
    assert "No module named 'attacks.nowhere'" in finding.message
