"""Comparison of two evaluations of the same items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from core.errors import EvaluationError
from core_tasks.agreement.measures import share
from core_tasks.evaluation.measures import mcnemar
from core_tasks.evaluation.result import Record
from core_tasks.evaluation.tally import Tally


@dataclass(frozen=True, slots=True)
class Flip:
    """An item that both answer differently. ``name`` is its line or its name."""

    name: str
    gold: str
    first: Record
    second: Record

    @property
    def sureness(self) -> float:
        """The larger of the two sureness values."""
        return max(record.get("sureness") or 0.0 for record in (self.first, self.second))

    def to_dict(self) -> dict[str, Any]:
        """Return the flip for JSON."""
        return {
            "item": self.name,
            "gold": self.gold,
            **{
                name: {key: record.get(key) for key in ("prediction", "right", "sureness")}
                for name, record in (("first", self.first), ("second", self.second))
            },
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Result of comparing two evaluations.

    ``items`` were marked in both, and ``same`` have equal predictions. ``first_alone`` are only
    right in the first. ``p_value`` is McNemar's, exact. ``largest_difference`` is the largest
    difference of a choice's probability, at the item ``largest_at``. ``flips`` are sorted by
    sureness, the surest first.
    """

    items: int
    failed: int
    same: int
    first_alone: int
    second_alone: int
    flips: tuple[Flip, ...]
    largest_difference: float | None
    largest_at: str | None
    first: Mapping[str, Any]
    second: Mapping[str, Any]

    @property
    def agreement(self) -> float | None:
        """The share of the items with equal predictions."""
        return share(self.same, self.items)

    @property
    def p_value(self) -> float:
        """The probability of counts at least as uneven if both are equally good."""
        return mcnemar(self.first_alone, self.second_alone)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {
            "items": self.items,
            "failed": self.failed,
            "same": self.same,
            "agreement": self.agreement,
            "right_in_first_alone": self.first_alone,
            "right_in_second_alone": self.second_alone,
            "mcnemar_p": self.p_value,
            "largest_probability_difference": self.largest_difference,
            "largest_at": self.largest_at,
            "first": dict(self.first),
            "second": dict(self.second),
            "flips": [flip.to_dict() for flip in self.flips],
        }


def compare(
    first: Iterable[tuple[str, Record]], second: Iterable[tuple[str, Record]]
) -> Comparison:
    """Compare two evaluations item by item; the names of the items must be the same.

    Items that failed in either are skipped, and counted. Raises `EvaluationError` for other items.
    """
    ours, theirs = Tally(), Tally()
    failed = same = first_alone = second_alone = 0
    flips, difference, place = [], None, None
    for one, other in zip_longest(first, second):
        name, a, b = _paired(one, other)
        if a["right"] is None or b["right"] is None:
            failed += 1
            continue

        ours.add(a)
        theirs.add(b)
        first_alone += a["right"] and not b["right"]
        second_alone += b["right"] and not a["right"]
        if a["prediction"] == b["prediction"]:
            same += 1
        else:
            flips.append(Flip(name, a["gold"], a, b))
        apart = _apart(a, b)
        if apart is not None and (difference is None or apart > difference):
            difference, place = apart, name

    flips.sort(key=lambda flip: -flip.sureness)
    return Comparison(
        items=ours.items,
        failed=failed,
        same=same,
        first_alone=first_alone,
        second_alone=second_alone,
        flips=tuple(flips),
        largest_difference=difference,
        largest_at=place,
        first=ours.to_dict(),
        second=theirs.to_dict(),
    )


def _paired(
    one: tuple[str, Record] | None, other: tuple[str, Record] | None
) -> tuple[str, Record, Record]:
    if one is None or other is None:
        raise EvaluationError(
            "One evaluation has more items than the other. Compare evaluations of the same items."
        )
    (name, a), (same, b) = one, other
    if name != same or a["gold"] != b["gold"]:
        raise EvaluationError(
            f"These are not the same items: {name} with the answer {a['gold']!r:.60}, and {same} "
            f"with {b['gold']!r:.60}. Compare evaluations of one file, marked in the same way."
        )
    return name, a, b


def _apart(a: Record, b: Record) -> float | None:
    """Return the largest difference of a choice's probability."""
    ours, theirs = a.get("probabilities"), b.get("probabilities")
    if not ours or not theirs or ours.keys() != theirs.keys():
        return None
    return float(max(abs(share - theirs[choice]) for choice, share in ours.items()))
