"""A sound backend in low precision passes all checks, whatever is drawn and generated."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from array import array
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import cast

import pytest

from core.protocols import Backend
from core.types import ModelInfo
from core_conformance.checking.check import all_checks
from core_conformance.checking.subject import Effort, Subject
from core_conformance.reference import Reference, write_model
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.running.result import Status
from core_conformance.running.runner import run_check

TOLERANCE = 0.05
_DRAWN = Random(50)
SEEDS = [_DRAWN.getrandbits(32) for _ in range(50)]


def noisy_backend(seed: int) -> Backend:
    """The reference, whose logits are off by up to half its tolerance, differently each time.

    Each thread has random numbers of its own, which do not depend on who comes first.
    """
    drawn = threading.local()
    threads = itertools.count()

    class Noisy(Language):
        def logits(self, ids: Sequence[int]) -> array[float]:
            if not hasattr(drawn, "numbers"):
                drawn.numbers = Random(f"{seed} {next(threads)}")
            noise = drawn.numbers.random
            values = super().logits(ids)
            return array("f", (value + TOLERANCE * (noise() - 0.5) for value in values))

    class NoisyModel(ReferenceModel):
        @property
        def info(self) -> ModelInfo:
            return dataclasses.replace(super().info, logit_tolerance=TOLERANCE)

    parts = {"language_class": Noisy, "model_class": NoisyModel}
    return cast("Backend", type("NoisyReference", (Reference,), parts)())


# The first one takes a minute, all of them three quarters of an hour.
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.long if place else pytest.mark.slow)
        for place, seed in enumerate(SEEDS)
    ],
)
def test_no_false_alarm(seed: int, tmp_path: Path) -> None:
    subject = Subject(noisy_backend(seed), str(write_model(tmp_path)), effort=Effort(seed=seed))
    results = [run_check(check, subject) for check in all_checks().values()]
    subject.close()
    failed = {result.id: result.reason for result in results if result.status is Status.FAILED}
    assert failed == {}
    assert sum(result.status is Status.PASSED for result in results) > 0.95 * len(results)
