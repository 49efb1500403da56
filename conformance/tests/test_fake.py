"""The fake that `core` offers to its users' tests is certified like any backend."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import pytest

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, FakeEncoder, FakeModel, write_model
from core_conformance.checking.check import Check, all_checks
from core_conformance.running.result import Status
from core_conformance.running.run import Run
from core_conformance.running.settings import Settings

_TEXT = "the é sea, 漢字 and 🎉 wind: "
_BLANK = 0.9  # the probability of a blank after a character


class Fake(FakeBackend):
    """Forgets its models, which it keeps for a test to look at: here only the suite holds them."""

    def load_model(
        self, path: str | os.PathLike[str], config: core.LoadConfig
    ) -> FakeModel | FakeEncoder:
        model = super().load_model(path, config)
        self.models.remove(model)
        return model


def answer(prompt: str) -> str:
    """A language: what comes next depends on the first character, and on how many were read."""
    start = sum(map(ord, prompt[:1])) + 7 * len(prompt)
    return "".join(_TEXT[(start + 7 * place) % len(_TEXT)] for place in range(1200))


def likely(prompt: str, labels: Sequence[str]) -> dict[str, float]:
    """Each label's probability, whatever the other labels are: that of its characters.

    A prefix that is spelled in a label makes it no less likely: the fake never tells of one.
    """
    return {label: _probability(prompt, label.removeprefix(": ")) for label in labels}


def _probability(prompt: str, label: str) -> float:
    """In a language where a word ends often, so that a label without a blank is less likely.

    Of what came before, the first character counts, and how many there are that are not blank.
    """
    read, spaced = len("".join(prompt.split())), True
    probability = 1.0 if prompt[-1:].isspace() else _BLANK
    for character in label:
        blank = character.isspace()
        chance = (10 + crc32(f"{prompt[:1]}{read}{character}".encode()) % 90) / 1000
        if blank:
            chance = _BLANK if not spaced else _BLANK / 10
        elif not spaced:
            chance *= _BLANK / 10  # the tenth by which the fake tells a label without a blank
        probability, read, spaced = probability * chance, read + (not blank), blank
    return probability


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a fake's model; what a test registers is taken out again."""
    monkeypatch.setattr(REGISTRY, "_registered", dict(REGISTRY._registered))
    return str(write_model(tmp_path / "model", context_length=1024))


def asked(model: str, suite: list[Check]) -> Run:
    """These checks, run in this process."""
    run = Run(Settings(backend="fake", model=model, only=tuple(check.id for check in suite)))
    run.start()
    for check in run.checks:
        run.run(check)
    run.stop()
    return run


def failed(run: Run) -> dict[str, str]:
    return {r.id: r.reason for r in run.all_results() if r.status is not Status.PASSED}


@pytest.mark.parametrize(
    ("suite", "labels"),
    [
        pytest.param("narrow", likely, id="narrow-labels"),
        pytest.param("narrow", None, id="narrow-without labels"),
        pytest.param("all", likely, marks=pytest.mark.slow, id="all-labels"),
        pytest.param("all", None, marks=pytest.mark.long, id="all-without labels"),
    ],
    indirect=["suite"],
)
def test_the_fake_is_certified(
    model: str, suite: list[Check], labels: core.testing.script.Labels | None
) -> None:
    core.register(Fake(answer, labels=labels))
    run = asked(model, suite)
    assert failed(run) == {}
    assert [result.id for result in run.all_results()] == [check.id for check in suite]
    assert run.verdict().certifiable or run.partial


@pytest.mark.parametrize(
    "suite",
    ["narrow", pytest.param("all", marks=pytest.mark.long)],
    indirect=True,
)
def test_the_fake_encoder_is_certified(model: str, suite: list[Check]) -> None:
    core.register(Fake(encoder=True))
    assert failed(asked(model, suite)) == {}


@pytest.mark.parametrize(
    ("rule", "broken", "check"),
    [
        ("language.FakeGeneration._check", lambda self: None, "cancel.midway"),
        ("language.FakeEngine.room", lambda self, length: 10**9, "context.length"),
        ("language.draw", lambda likely, *others: likely, "sampling.seeds-differ"),
        ("model.checked_conversation", list, "chat.mappings"),
    ],
)
def test_without_one_of_its_rules_it_is_not(
    model: str, monkeypatch: pytest.MonkeyPatch, rule: str, broken: object, check: str
) -> None:
    core.register(Fake(answer, labels=likely))
    assert of(model, check) is Status.PASSED
    monkeypatch.setattr(f"core.testing.{rule}", broken)
    assert of(model, check) is Status.FAILED


def of(model: str, check: str) -> Status:
    """How one check ends."""
    run = Run(Settings(backend="fake", model=model))
    run.start()
    status = run.run(all_checks()[check]).status
    run.stop()
    return status
