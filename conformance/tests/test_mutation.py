"""Mutants of the reference: what is changed, what is left alone, and what becomes of them."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core_conformance import reference
from core_conformance.proof import mutant_process, mutation
from core_conformance.proof.mutant_process import Passed, survey
from core_conformance.proof.mutants import Mutant, mutants, traced
from core_conformance.proof.mutation import (
    Progress,
    all_mutants,
    listed,
    outcome_of,
    traced_sources,
)

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "mutation.txt"
SOURCE = '''
"""A text."""
LIMIT = 5

def first(rows: list[int], most: int = 3) -> int:
    """Say "no"."""
    if not rows or len(rows) > most:
        raise ValueError("more than 3 rows")
    return rows[1:][0]
'''


def names(body: str) -> set[str]:
    """What is changed in a function with this body."""
    return {mutant.name.partition(": ")[2] for mutant in mutants("m", f"def f(a, b):\n    {body}")}


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        ("return a < b", {"a < b -> a <= b", "return a < b -> return None"}),
        ("a += b", {"a += b -> a -= b"}),
        ("a(b)", {"a(b) -> pass"}),
        ("return 2", {"2 -> 3", "2 -> 1"}),
        ("return True", {"True -> False"}),
        ("return 'a text'", set()),
        ("return f'{a} and {b + 1}'", {"return f'{a} and {b + 1}' -> return None"}),
        ("raise ValueError(1)", {"raise ValueError(1) -> pass"}),
    ],
)
def test_what_is_made_of_a_statement(body: str, changed: set[str]) -> None:
    assert names(body) == changed


def test_arguments_conditions_and_slices() -> None:
    assert "a(b, 1) -> a(1, b)" in names("return a(b, 1)")
    assert "max(a, b) -> min(a, b)" in names("return max(a, b)")
    assert "max(a, b) -> max(b, a)" not in names("return max(a, b)")
    assert names("return a(b, b)") == {"return a(b, b) -> return None"}
    assert {"a and b -> a or b", "a and b -> a", "a and b -> b"} <= names("return a and b")
    assert "b: -> :" in names("return a[b:]")
    assert "a(b=1) -> a()" in names("return a(b=1)")
    assert not any("False" in name for name in names("return zip(a, b, strict=True)"))


def test_texts_annotations_and_the_numbers_of_a_module_are_left_alone() -> None:
    changed = mutants("m", SOURCE)
    for mutant in changed:
        assert '"""A text."""' in mutant.source
        assert "LIMIT = 5" in mutant.source
        assert "rows: list[int]" in mutant.source
        assert "more than 3 rows" in mutant.source or "pass" in mutant.source
    assert any("most: int=4" in mutant.source for mutant in changed)


def test_each_mutant_of_the_reference_differs_and_has_a_name_of_its_own() -> None:
    every = all_mutants()
    assert len({mutant.name for mutant in every}) == len(every) > 500
    assert len({(mutant.module, mutant.source) for mutant in every}) > 0.97 * len(every)
    for mutant in every:
        ast.parse(mutant.source)


def test_at_most_a_tenth_is_said_to_be_equivalent() -> None:
    assert len(listed()) <= len(all_mutants()) / 10
    assert all(proof.strip() for proof in listed().values())
    assert set(listed()) <= {mutant.name for mutant in all_mutants()}


def mutant_with(name: str) -> Mutant:
    (match,) = (mutant for mutant in all_mutants() if mutant.name == name)
    return match


@pytest.fixture
def asked_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these the only checks, each of which calls whatever a mutant is in."""
    places = frozenset({*(mutant.place for mutant in all_mutants()), "sampling", "weights"})

    def only(*checks: str) -> None:
        monkeypatch.setattr(mutation, "passed", lambda: {id: Passed(1.0, places) for id in checks})

    return only


def test_a_fault_is_killed_and_none_is_alive(asked_of: Callable[..., None]) -> None:
    broken = mutant_with("classification:_tokens: :start -> :start + 1")
    fault = mutant_with("batch:Batch.results: rows[row].append(token) -> pass")
    asked_of("batch.results", "identity.name")
    outcome = outcome_of([broken, fault], 1)
    assert outcome.killed == {fault.name: "batch.results"}
    assert outcome.alive == [broken.name]
    assert outcome.share == 0.5
    assert f"alive       {broken.name}" in str(outcome)


def test_a_listed_one_counts_as_equivalent_and_a_killed_one_is_stale(
    monkeypatch: pytest.MonkeyPatch, asked_of: Callable[..., None]
) -> None:
    same = Mutant("sampling", "sampling: same", _source_of("sampling"))
    fault = mutant_with("batch:Batch.results: rows[row].append(token) -> pass")
    asked_of("batch.results")
    monkeypatch.setattr(mutation, "listed", lambda: {same.name: "the same", fault.name: "wrong"})
    outcome = outcome_of([same, fault], 1)
    assert outcome.equivalent == {same.name: "the same"}
    assert outcome.alive == []
    assert outcome.stale == [fault.name]


def test_what_hangs_or_dies_is_noticed(
    monkeypatch: pytest.MonkeyPatch, asked_of: Callable[..., None]
) -> None:
    source = _source_of("sampling")
    dies = Mutant("sampling", "sampling: dies", f"{source}\nimport os\nos._exit(3)\n")
    hangs = Mutant("sampling", "sampling: hangs", f"{source}\nwhile True:\n    pass\n")
    wrong = Mutant("sampling", "sampling: wrong", f"{source}\nnowhere\n")
    asked_of("identity.name")
    monkeypatch.setattr(mutant_process, "PATIENCE", 10.0)
    killed = outcome_of([dies, hangs, wrong], 1).killed
    assert killed == {
        dies.name: "(ends the process)",
        hangs.name: "(hangs in its start)",
        wrong.name: "(NameError)",
    }


def test_what_makes_a_check_not_testable_is_told_apart(asked_of: Callable[..., None]) -> None:
    ends = _source_of("weights").replace("EOS: -6.0", "EOS: 60.0")
    mutant = Mutant("weights", "weights: ends at once", ends)
    asked_of("stop.across-three", "identity.name")
    assert outcome_of([mutant], 1).killed == {mutant.name: "stop.across-three (not testable)"}


def test_a_run_goes_on_where_it_was_ended(asked_of: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "progress.tsv"
    broken = mutant_with("classification:_tokens: :start -> :start + 1")
    fault = mutant_with("batch:Batch.results: rows[row].append(token) -> pass")
    asked_of("identity.name")
    assert len(outcome_of([broken, fault], 1, Progress(file)).alive) == 2
    asked_of("batch.results")
    assert len(outcome_of([broken, fault], 1, Progress(file)).alive) == 2  # none is run
    again = outcome_of([broken, fault], 1, Progress(file, again=True))
    assert again.killed == {fault.name: "batch.results"}
    assert outcome_of([broken, fault], 1, Progress(file)).killed == again.killed


def test_only_checks_that_call_what_a_mutant_is_in_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = mutant_with("batch:Batch.results: rows[row].append(token) -> pass")
    elsewhere = {"batch.results": Passed(1.0, frozenset({"sampling:sample"}))}
    monkeypatch.setattr(mutation, "passed", lambda: elsewhere)
    assert outcome_of([fault], 1).alive == [fault.name]


def test_a_survey_says_what_each_check_takes_and_calls() -> None:
    batch, chat = survey(traced_sources(), ["batch.results", "chat.empty"]).values()
    assert "batch:Batch.results" in batch.called - chat.called
    assert "model:ReferenceCore.do_chat" in chat.called - batch.called
    assert {"stream:SubmittedStream", "files:read_model"} <= batch.called & chat.called
    assert batch.limit > 20 * batch.seconds > 0


def test_all_that_runs_is_traced() -> None:
    called = set[str]()
    namespace: dict[str, Any] = {"called": called}
    exec(traced("m", f"{SOURCE}\nclass Rows:\n    def first(self): return 1"), namespace)
    assert called == {"m:Rows"}
    namespace["first"]([1, 2])
    assert called == {"m:Rows", "m:first"}


def _source_of(module: str) -> str:
    return (Path(reference.__path__[0]) / f"{module}.py").read_text("utf-8")


@pytest.mark.long  # 700 processes: half an hour
def test_nearly_every_mutant_of_the_reference_is_killed() -> None:
    outcome = outcome_of(all_mutants(), os.cpu_count() or 1)
    RESULT.write_text(f"{outcome}\n", encoding="utf-8")
    assert outcome.share >= 0.95, str(outcome)
    assert outcome.stale == []
