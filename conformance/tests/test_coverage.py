"""The table of ways and oddities: what is noted of calls, and no cell is empty unexplained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from core.options import GenerateConfig
from core.types import Message
from core_conformance import coverage
from core_conformance.checking.check import all_checks
from core_conformance.checking.script import record
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.forms import Awaited
from core_conformance.reference import Reference, write_model


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[Subject]:
    with closing(Subject(Reference(), str(write_model(tmp_path / "model")))) as one:
        yield one


@pytest.fixture
def recorder() -> Iterator[coverage.Recorder]:
    listener = coverage.Recorder()
    with record.listening(listener):
        yield listener


def reached(recorder: coverage.Recorder) -> set[coverage.Cell]:
    """The cells of the calls so far."""
    check = next(iter(all_checks().values()))
    recorder.take(check)
    return set(recorder.reached)


@pytest.mark.slow
def test_no_cell_is_empty_without_a_reason() -> None:
    by_cell = coverage.reached()
    empty = coverage.empty(by_cell)
    assert [cell for cell, why in empty.items() if not why] == []
    explained = {key for key in coverage.REASONS if not _is_used(key, empty)}
    assert not explained, "these reasons are of no empty cell"


def _is_used(key: coverage.Cell, empty: dict[coverage.Cell, str]) -> bool:
    return any(why == coverage.REASONS[key] and cell[1] == key[1] for cell, why in empty.items())


def test_a_call_reaches_its_cells(subject: Subject, recorder: coverage.Recorder) -> None:
    subject.model.batch_generate(["one\r\n", "", "one\r\n"], GenerateConfig(max_tokens=1), seed=0)
    cells = {oddity for way, oddity in reached(recorder) if way == "batch_generate"}
    assert cells == {"CR LF", "blank ends", "empty", "equal rows", "max_tokens=1", "seed", "config"}


def test_labels_and_messages_are_ways_of_their_own(
    subject: Subject, recorder: coverage.Recorder
) -> None:
    subject.model.classify(["x"], labels=("a", "A"))
    list(subject.model.chat([Message("system", "\0"), Message("user", "\u6f22")], max_tokens=1))
    cells = reached(recorder)
    assert {("classify: labels", "case alone"), ("classify with labels", "one character")} <= cells
    assert {("chat: system", "NUL"), ("chat: user", "a script")} <= cells
    assert not any(way in ("classify", "generate") for way, _ in cells)


def test_what_is_awaited_is_another_way(subject: Subject, recorder: coverage.Recorder) -> None:
    list(Awaited(subject.model).generate("\u0301", max_tokens=1))
    assert {way for way, _ in reached(recorder)} == {"awaited generate"}


def test_an_iterator_is_noted_as_it_is_read(subject: Subject, recorder: coverage.Recorder) -> None:
    stream = subject.model.classify_iter(iter(["\0", "x"]))  # type: ignore[attr-defined]
    assert reached(recorder) == set()
    assert len(list(stream)) == 2
    assert ("classify_iter", "NUL") in reached(recorder)


def test_the_table_shows_what_is_empty() -> None:
    lines = coverage.text({("encode", "NUL"): {"text.nul"}}, names=True).splitlines()
    assert any(line.split() == ["NUL", "1", "text.nul"] for line in lines)
    assert f"  {'empty':32}   - a tokenizer may make a BOS of no text, or nothing" in lines
    assert lines[-1].startswith(f"{sum(map(len, coverage.cells().values()))} cells, 1 reached")
