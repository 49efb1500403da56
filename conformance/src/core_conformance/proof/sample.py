"""A part of the self-test: some checks, in random order, as many as there is time for.

The reference must pass each of them, and a faulty backend must fail it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from core_conformance.checking.check import Check
from core_conformance.proof.record import expected
from core_conformance.proof.registry import Saboteur, all_saboteurs
from core_conformance.proof.selftest import Progress, failures
from core_conformance.reference import Reference, write_model

SECONDS = 20.0
"""Seconds after which no further check begins."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of a sample: ``tried`` of ``total`` checks, and a line for each problem."""

    tried: int
    total: int
    seed: int
    problems: tuple[str, ...]
    seconds: float

    def __str__(self) -> str:
        """Return the result as a few lines for people."""
        if self.problems:
            lines = "".join(f"\n  {problem}" for problem in self.problems)
            return f"The suite is not sound, {len(self.problems)} problems:{lines}"
        part = "" if self.tried == self.total else f" of {self.total}, drawn with seed {self.seed}"
        return (
            f"No problem found: the reference passes {self.tried} checks{part}, and faulty "
            f"backends fail each of them ({self.seconds:.0f} s)."
        )


def run(
    checks: Sequence[Check],
    seed: int = 0,
    seconds: float = SECONDS,
    progress: Progress = lambda line: None,
    *,
    all_of_them: bool = False,
) -> Sample:
    """Test checks in the order of the seed, each with one of the faulty backends that must fail it.

    ``all_of_them``: with every one, whatever time it takes. At least one check is tried.
    """
    start, dice = time.monotonic(), Random(seed)
    problems: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as folder:
        path = str(write_model(folder))
        for check in dice.sample(checks, len(checks)):
            if tried and not all_of_them and time.monotonic() - start >= seconds:
                break
            progress(check.id)
            detected = _failing(check)
            one = detected if all_of_them else dice.sample(detected, min(1, len(detected)))
            problems += _problems(check, one, path)
            tried += 1
    elapsed = time.monotonic() - start
    return Sample(tried, len(checks), seed, tuple(problems), elapsed)


def _problems(check: Check, faulty: Sequence[Saboteur], path: str) -> Iterator[str]:
    for reason in failures(Reference(), path, [check]).values():
        yield f"{check.id}: a sound backend fails: {reason}"
    if not faulty:
        yield f"no faulty backend fails {check.id}"
    for broken in faulty:
        if check.id not in failures(broken.backend(), path, [check]):
            yield f"{check.id}: passes {broken.name} ({broken.breaks})"


def _failing(check: Check) -> list[Saboteur]:
    """Return the faulty backends that must fail a check."""
    return [broken for broken in all_saboteurs().values() if check.id in expected(broken).always]
