"""Sweeps over sizes: the sizes, prompts of just so many tokens, and what a sweep may take."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.protocols import Capability
from core.types import Token
from core_conformance.checking import budget
from core_conformance.checking.ask import Answer
from core_conformance.checking.check import Violation, all_checks, begin_tally
from core_conformance.checking.compare import same_rows
from core_conformance.checking.sizes import MOST, cuts, rows, sized, telling, words
from core_conformance.checking.subject import Effort, Subject
from core_conformance.proof.registry import all_saboteurs
from core_conformance.reference import Reference, write_model
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import encode
from core_conformance.running.runner import run_check

_NAMES = "river stone garden"


class Merging(ReferenceModel):
    """A tokenizer of words, in which " garden" and " stone" are one token each."""

    def encode(self, text: str) -> list[int]:
        """An id for the beginning, one for each word of these, and one for any other character."""
        for number, name in enumerate(_NAMES.split()):
            text = text.replace(f" {name}", chr(300 + number))
        return [0, *map(ord, text)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


@pytest.fixture
def subject(path: str) -> Iterator[Subject]:
    """The reference, which may take a second, with passes of 10 ms."""
    reference = Subject(Reference(), path, effort=Effort(seconds=1.0, least=2))
    budget._measured[reference] = 0.01
    yield reference
    reference.close()


class Clock:
    """Time that passes as a test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """See `time`."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which sweeps are measured."""
    clock = Clock()
    monkeypatch.setattr(budget, "time", clock)
    return clock


# --------------------------------------------------------------------------- sizes and prompts


def test_sizes_around_powers_of_two_come_first() -> None:
    sizes = telling(130)
    assert sizes[:7] == [8, 16, 32, 64, 128, 9, 17]
    assert {127, 129} < set(sizes[:16])
    assert sorted(sizes) == list(range(1, 131))
    assert telling(9, least=3) == [8, 9, 7, 3, 4, 5, 6]
    assert telling(0) == []


def test_a_prompt_has_as_many_tokens_as_are_asked_for(subject: Subject) -> None:
    prompts = {size: sized(subject, size) for size in telling(MOST, least=2)}
    assert {size: len(encode(prompt or "")) for size, prompt in prompts.items()} == {
        size: size for size in prompts
    }
    beginnings = [str(sized(subject, size, turn))[:3] for size in (64, 65, 66) for turn in (0, 1)]
    assert len(set(beginnings)) == len(beginnings)


def test_a_prompt_ends_with_a_word_where_it_can(path: str) -> None:
    backend = type("Merged", (Reference,), {"model_class": Merging})()
    subject = Subject(backend, path)
    prompts = [sized(subject, size, turn) for size in range(2, 30) for turn in range(3)]
    assert all(prompts)
    assert any(str(prompt).endswith(_NAMES[-6:]) for prompt in prompts)
    subject.close()


def test_cuts_are_those_that_the_tokenizer_makes(subject: Subject) -> None:
    text = "the thing is on the hill"
    whole, prefixes = encode(text), cuts(subject, text)
    assert prefixes[len(whole)] == text
    assert all(encode(front) == whole[:size] for size, front in prefixes.items())
    assert "t" not in prefixes.values()  # " the" is one token, and so is "the"


def test_rows_differ_and_no_word_begins_another() -> None:
    assert len(set(rows(257))) == 257
    assert not [(a, b) for a in words(60) for b in words(60) if a != b and b.startswith(a)]


# --------------------------------------------------------------------------- what a sweep may take


def test_what_does_not_fit_is_left_out_and_said(subject: Subject, clock: Clock) -> None:
    left = begin_tally().left_out
    ran = []
    for case in budget.within(subject, (10, 200, 20, 80), float, "sizes"):
        clock.now += case * 0.01
        ran.append(case)
    assert ran == [10, 20]
    assert left == ["sizes: 200, 80"]


def test_cases_that_take_longer_than_said_leave_less_for_others(
    subject: Subject, clock: Clock
) -> None:
    ran = []
    for case in budget.within(subject, range(1, 50), lambda case: 1.0, "sizes"):
        clock.now += 0.1  # ten times as long as a pass
        ran.append(case)
    assert 9 <= len(ran) <= 10


def test_cases_that_take_less_make_room_for_others(subject: Subject, clock: Clock) -> None:
    ran = []
    for case in budget.within(subject, range(1, 500), lambda case: 1.0, "sizes"):
        clock.now += 0.002
        ran.append(case)
    assert len(ran) == 499


def test_the_first_case_runs_whatever_it_takes(subject: Subject, clock: Clock) -> None:
    assert list(budget.within(subject, (10_000, 1), float, "sizes"))[:1] == [10_000]


def test_a_share_is_a_part_of_the_passes(subject: Subject, clock: Clock) -> None:
    ran = []
    for case in budget.within(subject, range(100), lambda case: 1.0, "sizes", share=0.3):
        clock.now += 0.01
        ran.append(case)
    assert 29 <= len(ran) <= 31


def test_nothing_is_cut_where_a_run_goes_deep(path: str, clock: Clock) -> None:
    deep = Subject(Reference(), path, effort=Effort(deep=True))
    budget._measured[deep] = 0.01
    ran = []
    for case in budget.within(deep, range(100), lambda case: 1000.0, "sizes"):
        clock.now += 10.0
        ran.append(case)
    assert len(ran) == 100
    deep.close()


# --------------------------------------------------------------------------- what a sweep says


def test_another_logprob_is_another_row(subject: Subject) -> None:
    one = Answer((Token(1, "a", -1.0), Token(2, "b", -2.0)), "length", "x")
    near = Answer((Token(1, "a", -1.0), Token(2, "b", -2.00002)), "length")
    same_rows(subject, [(one, near)], "")
    for far in (
        Answer((Token(1, "a", -1.0), Token(2, "b", -2.1)), "length"),
        Answer((Token(1, "a", -1.0), Token(2, "b")), "length"),
        Answer((Token(1, "a", -1.0), Token(2, "c", -2.0)), "length"),
        Answer(one.tokens, "stop"),
    ):
        with pytest.raises(Violation):
            same_rows(subject, [(one, far)], "")


@pytest.mark.parametrize(
    ("saboteur", "check", "size"),
    [
        ("prompt-of-64", "lengths.prompts", "a prompt of 64 tokens"),
        ("rows-in-a-byte", "rows.classify", "one of 257 prompts"),
        ("seventeenth-row", "rows.batch", "one of 33 prompts"),
        ("stop-spans-four", "stop.spans", "stop="),
        ("first-turns-forgotten", "chat.long", "of 41 messages, number 0"),
    ],
)
def test_a_failure_names_the_size(path: str, saboteur: str, check: str, size: str) -> None:
    subject = Subject(all_saboteurs()[saboteur].backend(), path)
    assert size in run_check(all_checks()[check], subject).reason
    subject.close()


@pytest.mark.parametrize("off", [set(), {Capability.TOKENIZING}], ids=["shown", "hidden"])
def test_a_short_context_is_swept_as_far_as_it_goes(tmp_path: Path, off: set[Capability]) -> None:
    subject = Subject(Reference(without=off), str(write_model(tmp_path / "model", 128)))
    checks = [check for id, check in all_checks().items() if id.startswith("lengths.")]
    for check in checks:
        assert run_check(check, subject).status == "passed", check.id
    subject.close()
