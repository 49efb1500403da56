"""Labels that no row of a call expects are warned of, once for a model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

import core
from core.errors import EmptyPromptError
from core.kit.base import RequestClock
from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_runtime.classifying import ClassifyingModel
from core_runtime.label_mass import LabelMass
from core_runtime.rows import PromptRow
from runtime.tests.test_equal_rows import SERVED

FAILED = ClassifyResult(error=EmptyPromptError("no token"))
CAPABILITIES = frozenset(core.Capability)


def rows(*masses: float | None) -> list[ClassifyResult]:
    """Results with these label masses."""
    return [ClassifyResult(label="a", label_mass=mass) for mass in masses]


def beside(mass: float, probability: float) -> list[ClassifyResult]:
    """Results whose token is known to be this likely."""
    token = Token(1, "a", math.log(probability))
    return [ClassifyResult(token, label="a", label_mass=mass)] * 2


@pytest.mark.parametrize(
    ("results", "warned"),
    [
        (rows(1e-7, 0.0), True),
        ([FAILED, *rows(1e-7, 1e-8)], True),
        (rows(1e-7, 1e-6), False),
        (rows(1e-7), False),  # one row tells little
        ([FAILED, *rows(1e-7)], False),
        (rows(None, None), False),  # labels alone: nothing is known of the others
        (rows(float("nan"), 1e-7), False),
        (beside(1e-4, 0.5), True),
        (beside(1e-4, 0.05), False),
        ([], False),
    ],
)
def test_several_rows_and_all_of_them(
    caplog: pytest.LogCaptureFixture, results: list[ClassifyResult], warned: bool
) -> None:
    LabelMass().look(results)
    assert bool(caplog.records) is warned


class Unlikely:
    """Finds every label as likely as the prompt has letters, in ten millionths."""

    reused = 0

    def results(
        self, blocks: Iterable[Sequence[PromptRow]]
    ) -> Iterator[tuple[PromptRow, ClassifyResult]]:
        for block in blocks:
            for row in block:
                yield row, ClassifyResult(label="a", label_mass=1e-7 * len(row.ids))


class Model(ClassifyingModel):
    """A model with that classifier."""

    model_type = "unlikely"

    def __init__(self) -> None:
        super().__init__("unlikely", SERVED, SimpleNamespace(), CAPABILITIES)  # type: ignore[arg-type]

    def classifier(self, request: GenerateConfig, clock: RequestClock) -> Any:
        return Unlikely()

    def release(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("streamed", [False, True])
def test_it_is_logged_once_for_a_model(caplog: pytest.LogCaptureFixture, streamed: bool) -> None:
    def ask(model: Model, prompts: list[str]) -> list[ClassifyResult]:
        labels = ("a", "b")
        if streamed:
            return list(model.classify_iter(iter(prompts), labels=labels))
        return model.classify(prompts, labels=labels)

    one, other = Model(), Model()
    assert len(ask(one, ["abc", "d" * 20])) == 2
    assert not caplog.records
    for _ in range(2):
        assert len(ask(one, ["abc", "de"])) == 2
    assert len(caplog.records) == 1
    assert "In none of 2 rows does the model expect any of the labels" in caplog.text
    ask(other, ["abc", "de"])
    assert len(caplog.records) == 2
