"""Generated inputs: the same for a seed, shrunk in bounded time, and nothing written anywhere."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st

from core_conformance.checking.check import Violation, generated, must
from core_conformance.checking.generated import strategies
from core_conformance.checking.generated.search import search
from core_conformance.checking.subject import Effort, Subject
from core_conformance.reference import Reference, write_model

Check = Callable[[Any, Any], None]
NUMBERS = st.lists(st.integers(0, 1000), max_size=20)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


def inputs(path: str, seed: int = 0, most: int = 30, **effort: Any) -> list[Any]:
    """The inputs of a search."""
    subject, seen = Subject(Reference(), path, effort=Effort(seed=seed, **effort)), list[Any]()
    search(subject, strategies.rows(), lambda world, case: seen.append(case), len, most)
    return seen


def violation(path: str, run: Check, **effort: Any) -> Violation:
    """What a search raises."""
    subject = Subject(Reference(), path, effort=Effort(**effort))
    with pytest.raises(Violation) as raised:
        search(subject, NUMBERS, run, len)
    return raised.value


def test_a_seed_stands_for_its_inputs_however_many_there_is_time_for(path: str) -> None:
    few, many = inputs(path, most=10), inputs(path, most=40)
    assert len(few) == 10
    assert many[:10] == few
    assert inputs(path, 1, 10) != few


def test_hypothesis_is_imported_where_something_is_generated() -> None:
    code = (
        "import sys; from core_conformance.checking.check import all_checks; "
        "sys.exit(not all_checks() or 'hypothesis' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_passes_are_the_limit(path: str) -> None:
    rows = inputs(path, most=1000, seconds=1e-9, least=40)
    assert sum(map(len, rows[:-1])) < 40 <= sum(map(len, rows))


@pytest.mark.parametrize(("deep", "count"), [(False, 1), (True, 4)])
def test_a_deep_search_takes_its_time(
    path: str, monkeypatch: pytest.MonkeyPatch, deep: bool, count: int
) -> None:
    """On a clock that each input moves by a second, three and a half end with the fourth."""
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr("core_conformance.checking.generated.search.time", clock)
    subject, seen = Subject(Reference(), path, effort=Effort(seconds=3.5, deep=deep)), list[Any]()

    def run(world: Any, case: Any) -> None:
        seen.append(case)
        clock.now += 1.0

    search(subject, strategies.rows(), run, len, 1)
    assert len(seen) == count


def test_inputs_differ(path: str) -> None:
    seen = inputs(path, most=60)
    assert len({repr(rows) for rows in seen}) == 60
    text = "".join("".join(rows) for rows in seen)
    assert "\0" in text
    assert any(ord(character) > 0xFFFF for character in text)
    assert any(0x300 <= ord(character) < 0x370 for character in text)
    assert "</s>" in text


def test_what_fails_is_made_small(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "core_conformance.checking.generated.search._SHRINKING", 120.0
    )  # a busy machine finds the smallest as well
    monkeypatch.setattr("core_conformance.checking.generated.search._LONGEST", 120.0)
    seen: list[list[int]] = []

    def run(world: Any, case: list[int]) -> None:
        world.model.encode(repr(case))
        if sum(case) > 500:
            seen.append(case)
            must(False, f"{sum(case)} is too much")

    error = violation(path, run)
    assert str(error).startswith("501 is too much [generated input ")
    assert "of --seed 0" in str(error)
    assert "it failed in 2 of 2 more runs" in str(error)
    assert error.call.endswith("print(model.encode('[501]'))")


def test_making_small_ends_in_time(path: str) -> None:
    def run(world: Any, case: list[int]) -> None:
        time.sleep(0.05)
        must(len(case) < 5, "too long")

    start = time.monotonic()
    violation(path, run)
    assert time.monotonic() - start < 30


def test_what_fails_now_and_then_is_reported_as_it_was_seen(path: str) -> None:
    calls: list[list[int]] = []

    def run(world: Any, case: list[int]) -> None:
        calls.append(case)
        must(len(calls) % 7 not in (0, 1), f"seen at call {len(calls)}")

    assert "seen at call" in str(violation(path, run))


def test_what_fails_once_and_never_again_is_reported_with_what_came_before(path: str) -> None:
    calls: list[list[int]] = []

    def run(world: Any, case: list[int]) -> None:
        calls.append(world.model.encode(f"call {len(calls)}"))
        must(len(calls) != 5, "the fifth")

    error = violation(path, run)
    assert str(error).startswith(
        "the fifth [generated input 5 of --seed 0, after the inputs before it"
    )
    assert "call 0" in error.call
    assert "call 4" in error.call


def test_an_error_of_the_backend_is_a_violation_with_its_traceback(path: str) -> None:
    def run(world: Any, case: list[int]) -> None:
        if len(case) > 3:
            raise KeyError("weights")

    error = violation(path, run)
    assert "raised KeyError('weights')" in str(error)
    assert isinstance(error.__context__, KeyError)


def test_each_generated_check_is_broad() -> None:
    assert len(generated()) >= 7
    assert all(check.broad for check in generated())


_ALONE = """
import sys
from core_conformance.checking.check import generated
from core_conformance.checking.subject import Subject
from core_conformance.reference import Reference
from core_conformance.running.runner import run_check
subject = Subject(Reference(), sys.argv[1])
for check in generated():
    if check.id != "generated.calls":
        print(run_check(check, subject).reason)
"""


def test_nothing_is_written_into_the_users_folder(path: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")
    assert list(tmp_path.iterdir()) == []
