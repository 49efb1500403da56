"""Counts of all marks, item by item, in constant memory.

They are computed from the records of the items (`ItemResult.to_dict`), so that written results can
be counted again: of merged shards, or of a resumed job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from core_tasks.agreement import Agreement
from core_tasks.agreement.measures import brier, share, wilson
from core_tasks.evaluation.measures import mean_interval, pass_at
from core_tasks.evaluation.result import Record

_UNIT = 2**30  # of Brier's sum: whole numbers, so that the order of the items does not matter


class Tally:
    """Counts of items; ``pass_at`` are the numbers of samples of which one must be right."""

    def __init__(self, pass_at: Sequence[int] = ()) -> None:
        self.items = self.failed = self.right = 0
        self.normalised = self.normalised_right = 0
        self.among_examples = self.among_right = 0
        self.tokens = 0
        self._agreement = Agreement()
        self._brier = self._brier_items = 0
        self._sizes: dict[str, list[int]] = {}  # right, another answer
        self._samples = self._majority = 0
        self._first: int | None = None
        self._ks = tuple(pass_at)
        self._passed: defaultdict[int, list[Fraction]] = defaultdict(lambda: [Fraction(0)] * 2)

    def add(self, record: Record) -> None:
        """Count an item; a failed one is only counted as failed."""
        self.items += 1
        if record["error"] is not None or record["right"] is None:
            self.failed += 1
            return

        right = bool(record["right"])
        self.right += right
        self.tokens += record.get("tokens") or 0
        sureness = record.get("sureness")
        self._agreement.add("right", "right" if right else "wrong", sureness)

        # Fields that not every item has.
        if record.get("right_normalised") is not None:
            self.normalised += 1
            self.normalised_right += bool(record["right_normalised"])
        if (shares := record.get("probabilities")) and None not in shares.values():
            self._brier += round(brier(shares, record["gold"]) * _UNIT)
            self._brier_items += 1
        if record.get("among_examples"):
            self.among_examples += 1
            self.among_right += right

        # Results of other batch sizes, and other samples.
        for size, again in (record.get("batch_sizes") or {}).items():
            counts = self._sizes.setdefault(size, [0, 0])
            counts[0] += bool(again["right"])
            counts[1] += not again["same"]
        if samples := record.get("samples"):
            self._add_samples(samples, bool(record["majority_right"]))

    def _add_samples(self, samples: Sequence[Mapping[str, Any]], majority: bool) -> None:
        self._samples += 1
        self._majority += majority
        right = sum(bool(sample["right"]) for sample in samples)
        for k in {1, *self._ks}:
            if k <= len(samples):
                chance = pass_at(k, len(samples), right)
                self._passed[k][0] += chance
                self._passed[k][1] += chance * chance

    @property
    def marked(self) -> int:
        """The number of items that did not fail."""
        return self.items - self.failed

    @property
    def accuracy(self) -> float | None:
        """The share of them that are right; of several samples, the first."""
        return share(self.right, self.marked)

    def to_dict(self) -> dict[str, Any]:
        """Return the metrics for JSON. A metric that no item defines is omitted or None.

        Intervals are 95 %: Wilson's for shares, 1.96 standard errors for the means of ``pass_at``.
        """
        error = self._agreement.calibration_error()
        report: dict[str, Any] = {
            "items": self.items,
            "failed": self.failed,
            "right": self.right,
            **_accuracy("accuracy", self.right, self.marked),
            "calibration_error": None if error is None else error.value,
            "calibration_error_interval": None if error is None else [*error.interval],
            "brier": share(self._brier / _UNIT, self._brier_items),
            "generated_tokens": self.tokens,
            "among_examples": self.among_examples,
        }
        if self.normalised:
            report |= _accuracy("accuracy_normalised", self.normalised_right, self.normalised)
        if self.among_examples:
            others = self.marked - self.among_examples
            report |= _accuracy("accuracy_of_others", self.right - self.among_right, others)
        if self._sizes:
            report["batch_sizes"] = {
                size: {**_accuracy("accuracy", right, self.marked), "other_answers": other}
                for size, (right, other) in self._sizes.items()
            }
        if self._samples:
            report["pass_at"] = {str(k): self._pass(k) for k in sorted(self._passed)}
            report |= _accuracy("accuracy_of_majority", self._majority, self._samples)
        return report

    def _pass(self, k: int) -> dict[str, Any]:
        total, squares = self._passed[k]
        mean = float(total / self._samples)
        interval = mean_interval(mean, float(squares / self._samples), self._samples)
        return {"mean": mean, "interval": None if interval is None else [*interval]}


def _accuracy(name: str, right: int, items: int) -> dict[str, Any]:
    interval = wilson(right, items)
    return {name: share(right, items), f"{name}_interval": interval and [*interval]}
