"""Checks that compare nothing: they say so, and pass nobody."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.protocols import Capability
from core.types import Token
from core_conformance.checking.ask import Answer
from core_conformance.checking.check import Check, all_checks, begin_tally
from core_conformance.checking.compare import rarely_different, same_answers, same_logits
from core_conformance.checking.subject import Subject
from core_conformance.proof import selftest
from core_conformance.proof.poor_models import POOR_MODELS, PoorModel
from core_conformance.reference import Reference, write_model
from core_conformance.running.result import Status
from core_conformance.running.run import Run
from core_conformance.running.runner import NOTHING, run_check

if TYPE_CHECKING:
    from conformance.tests.conftest import Command

SINGLE = ("generate", "chat", "classify", "batch_generate", "submitting")


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A reference model."""
    return str(write_model(tmp_path_factory.mktemp("models") / "reference"))


@pytest.fixture
def subject(path: str) -> Subject:
    """The reference with it."""
    return Subject(Reference(), path)


# All checks, each time; test_fairness.py asks two such models by default. What these lack others of
# them lack too, and more of it; test_fairness.py has another model with room for 128 tokens.
IN_THE_LONG_TESTS = {
    *("endless", "terse", "short-template", "plain-template", "deaf", "short-context"),
}


@pytest.mark.parametrize(
    "poor",
    [
        pytest.param(
            poor,
            marks=pytest.mark.long if poor.name in IN_THE_LONG_TESTS else pytest.mark.slow,
            id=poor.name,
        )
        for poor in POOR_MODELS
    ],
)
def test_with_a_poor_model_no_check_passes_in_silence(poor: PoorModel, path: str) -> None:
    assert selftest.silences(poor, path) == []


@pytest.mark.parametrize(
    ("poor", "check", "words"),
    [
        ("deaf", "tasks.prior", "the log-probabilities of the labels after 4 different texts"),
        ("deaf", "tasks.prior", "differ by at most 0, so that swapped texts would not show"),
        ("deaf", "hidden.prompts", "different prompts differ by at most 0, and less than 2e-05"),
        ("blank", "labels.label", "in probability by at most 0, and less than 0.0001"),
        ("blank", "training.loss", "all logits, or log-probabilities, that the model gave"),
        ("ascii", "labels.nul", "is -inf"),
    ],
)
def test_not_testable_says_what_was_seen(poor: str, check: str, words: str, path: str) -> None:
    model = next(model for model in POOR_MODELS if model.name == poor)
    with closing(Subject(model.backend(), path)) as subject:
        result = run_check(all_checks()[check], subject)
    assert result.status is Status.NOT_TESTABLE
    assert words in result.reason


def test_a_template_for_one_turn_is_not_held_against_a_training(path: str) -> None:
    (poor,) = (poor for poor in POOR_MODELS if poor.name == "short-template")
    result = run_check(all_checks()["training.turns"], Subject(poor.backend(), path))
    assert result.status is Status.NOT_TESTABLE
    assert "several turns" in result.reason


@pytest.mark.parametrize("operation", SINGLE)
def test_every_check_compares_something_of_every_backend(
    operation: str, path: str, suite: list[Check]
) -> None:
    only = Subject(Reference(without=frozenset(Capability) - {Capability(operation)}), path)
    results = [run_check(check, only) for check in suite]
    assert {
        r.id: r.reason for r in results if r.status is not Status.PASSED or not r.compared
    } == {}


def test_a_check_that_compares_nothing_is_not_testable(subject: Subject) -> None:
    empty = Check("empty", "Nothing MUST be.", (), 1, lambda subject: None)
    result = run_check(empty, subject)
    assert (result.status, result.reason) == (Status.NOT_TESTABLE, NOTHING)


@pytest.mark.parametrize("check_id", ["sampling.seed", "batch.order", "tokenizing.ids"])
def test_a_refusal_is_a_comparison(check_id: str, path: str) -> None:
    off = {Capability.SEED, Capability.BATCH_GENERATE, Capability.TOKENIZING}
    result = run_check(all_checks()[check_id], Subject(Reference(without=off), path))
    assert result.status is Status.PASSED
    assert result.refused
    assert result.compared


def said(*ids: int) -> Answer:
    return Answer(tuple(Token(id, "") for id in ids), "stop")


COMPARISONS: dict[str, tuple[Callable[[Subject], None], int]] = {
    "no answers": (lambda s: same_answers(s, [], ""), 0),
    "empty answers": (lambda s: same_answers(s, [(said(), said())], ""), 0),
    "one is empty": (lambda s: same_answers(s, [(said(1, 2),) * 2, (said(), said())], ""), 2),
    "no draws": (lambda s: rarely_different(s, [(said(), said())] * 4, ""), 0),
    "draws": (lambda s: rarely_different(s, [(said(1), said(1))] * 4, ""), 4),
    "no logits": (lambda s: same_logits(s, [], [], ""), 0),
    "logits": (lambda s: same_logits(s, [1.0, 2.0], [1.0, 2.0], ""), 2),
}


@pytest.mark.parametrize(("compare", "count"), COMPARISONS.values(), ids=COMPARISONS)
def test_what_counts_is_what_was_there(
    subject: Subject, compare: Callable[[Subject], None], count: int
) -> None:
    counted = begin_tally()
    compare(subject)
    assert counted.compared == count


def test_lines_and_report_say_what_was_compared_and_what_was_not(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "left_out", lambda run: ["toy.third: rows: 64, 128"])
    done = command("toy", "-m", "model", "--report", "report.json")
    header, *lines = (line.split("\t") for line in done.out.splitlines())
    assert header == ["CHECK", "STATUS", "SECONDS", "COMPARED", "NOTE"]
    assert {line[0]: line[3] for line in lines} == {
        "toy.first": "1",
        "toy.labels": "1",
        "toy.second": "1",
        "toy.third": "1",
    }
    assert "SKIPPED by toy.third: rows: 64, 128" in done.err
    checks = json.loads(Path("report.json").read_text(encoding="utf-8"))["checks"]
    assert [(check["compared"], check["left_out"]) for check in checks] == [(1, [])] * 4


@pytest.mark.usefixtures("toys")
def test_what_was_left_out_is_said_by_check(tmp_path: Path) -> None:
    from core_conformance.running.result import Result
    from core_conformance.running.settings import Settings

    run = Run(Settings("toy", str(tmp_path)))
    left_out = ("rows: 64, 128", "labels: 40")
    run.results["toy.first"] = Result("toy.first", Status.PASSED, compared=3, left_out=left_out)
    assert run.left_out() == ["toy.first: rows: 64, 128; labels: 40"]
