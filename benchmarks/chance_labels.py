"""The accuracy that `FewShot` reports of labels that are pure chance, which no head can learn.

The states of a text are drawn too, so that no model is needed::

    python benchmarks/chance_labels.py [--draws 30]

Prints Markdown: the accuracy that `head.accuracy` reports, the mean and the largest of all draws,
that of the best trial on the rows which chose it, and the head's on 200 texts that it never saw.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import core
from core_learn import FewShot

LAYERS, SIZE, NEW = 6, 64, 200


@dataclass(frozen=True, slots=True)
class Case:
    """So many texts, each so many times, with labels of so many kinds."""

    texts: int
    labels: int
    times: int = 1

    @property
    def name(self) -> str:
        """Return the name in the table."""
        repeated = f"{self.texts} texts, each {self.times} times" if self.times > 1 else self.texts
        return f"{repeated}, {self.labels} labels"


CASES = (Case(24, 3), Case(60, 2), Case(100, 2), Case(200, 4), Case(30, 3, times=3))


@dataclass(frozen=True, slots=True)
class Figures:
    """One draw: the accuracy that is reported, that of the best trial, and that on new texts."""

    reported: float
    best_trial: float
    on_new_texts: float


class NoiseModel:
    """A model whose states of a text are noise, the same at each call."""

    info = SimpleNamespace(num_layers=LAYERS, hidden_size=SIZE)

    def hidden_states(
        self, prompts: Sequence[str], config: object = None, /, *, layers: Sequence[int] = (-1,)
    ) -> list[core.HiddenResult]:
        """Return noise of which the text is the seed."""
        return [core.HiddenResult(tuple(layers), _noise(prompt, len(layers))) for prompt in prompts]


def _noise(text: str, layers: int) -> array[float]:
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    drawn = np.random.default_rng(seed).normal(size=(layers, SIZE)).astype(np.float32)
    return array("f", drawn.tobytes())


def draw(case: Case, seed: int) -> Figures:
    """Learn a head of chance labels, and judge it on new texts; equal texts have equal labels."""
    random, names = np.random.default_rng(seed), [f"label {n}" for n in range(case.labels)]
    gold = random.permutation(np.arange(case.texts) % case.labels)
    texts = [f"text {seed} {n}" for n in range(case.texts)] * case.times
    few = FewShot(NoiseModel()).fit(texts, [names[label] for label in gold] * case.times)
    assert few.head.accuracy is not None
    found = few.predict([f"new {seed} {n}" for n in range(NEW)])
    wanted = random.integers(0, case.labels, NEW)
    right = [label == names[place] for label, place in zip(found, wanted, strict=True)]
    best = max(trial.accuracy for trial in few.trials)
    return Figures(few.head.accuracy, best, statistics.mean(right))


def markdown(cases: Sequence[Case], draws: int) -> str:
    """Return the table of all cases."""
    names = ("rows", "reported", "largest", "best trial", f"on {NEW} new texts", "chance")
    lines = [f"| {' | '.join(names)} |", "|" + "---|" * len(names)]
    for case in cases:
        found = [draw(case, seed) for seed in range(draws)]
        shares = (
            statistics.mean(each.reported for each in found),
            max(each.reported for each in found),
            statistics.mean(each.best_trial for each in found),
            statistics.mean(each.on_new_texts for each in found),
            1 / case.labels,
        )
        cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
        lines.append(f"| {case.name} | {cells} |")
    return "\n".join(lines)


def main() -> None:
    """Draw, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=30)
    print(markdown(CASES, parser.parse_args().draws))


if __name__ == "__main__":
    main()
