"""How far probabilities are from the share that is right, and how well that is known.

The top-label calibration error of A. Kumar, P. Liang and T. Ma, Verified uncertainty calibration,
NeurIPS 2019: the root of the mean, over bins of equally many rows, of the squared distance of
accuracy and confidence. The distance that so few rows have by chance alone is taken off, their
section 4: each bin's squared distance less the variance of that distance, so that the square is
unbiased. Without, an error of 0 in 200 rows would be reported as 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.agreement.measures import Z_95, share

Cells = dict[int, list[int]]
"""By its number: rows, right ones, and their probabilities and squared gaps in units."""

FINE = 1024  # cells in a bin of equal width: rows of one cell stay together
UNIT = 2**30  # sums are whole numbers of its parts: within 64 bits for 8 thousand million rows


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose probability is in ``(low, high]``; the first bin has 0 as well.

    A row's gap is 1 or 0, for right or wrong, less its probability.
    """

    low: float
    high: float
    count: int
    right: int
    probability: float  # summed over the rows
    squares: float  # of the gaps, summed

    @property
    def accuracy(self) -> float | None:
        """How many of them are right."""
        return share(self.right, self.count)

    @property
    def confidence(self) -> float | None:
        """The mean of their probabilities."""
        return share(self.probability, self.count)

    @property
    def gap(self) -> float:
        """The mean of their gaps."""
        return (self.right - self.probability) / self.count

    @property
    def variance(self) -> float:
        """Return the variance of the mean gap, without bias; 0 for a single row."""
        if self.count < 2:
            return 0.0
        spread = self.squares - self.count * self.gap**2
        return max(0.0, spread) / (self.count * (self.count - 1))


@dataclass(frozen=True, slots=True)
class CalibrationError:
    """``squared`` is the unbiased estimate, below 0 about as often as not where the error is 0.

    ``variance`` is the estimate's.
    """

    squared: float
    variance: float

    @property
    def value(self) -> float:
        """The error, on the scale of probabilities."""
        return math.sqrt(max(0.0, self.squared))

    @property
    def interval(self) -> tuple[float, float]:
        """The error's interval of 95 %: the normal one of the square."""
        reach = Z_95 * math.sqrt(self.variance)
        low, high = self.squared - reach, self.squared + reach
        return math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))


def calibration_error(bins: Sequence[Bin]) -> CalibrationError | None:
    """Return the calibration error of bins that have rows; None where there is none."""
    rows = sum(each.count for each in bins)
    if not rows:
        return None
    squared, variance = [], []
    for each in bins:
        weight = each.count / rows
        apart = each.gap**2 - each.variance

        # With a row more of each kind: where all are right, their share is not known for certain.
        likely = (each.right + 1) / (each.count + 2)
        unsure = likely * (1 - likely) / each.count
        squared.append(weight * apart)
        variance.append(weight**2 * (4 * max(0.0, apart) * unsure + 2 * unsure**2))
    return CalibrationError(math.fsum(squared), math.fsum(variance))


def error_text(value: float, interval: Sequence[float]) -> str:
    """Return a calibration error with its interval, as programs print it."""
    low, high = interval
    return f"calibration error {value:.3f} ({low:.3f} to {high:.3f})"


def cell_of(probability: float, cells: int) -> int:
    """The number of the cell ``((m - 1)/cells, m/cells]`` that holds a probability, from 0."""
    return min(cells - 1, max(0, math.ceil(probability * cells) - 1))


def count(cells: Cells, cell: int, more: Sequence[int]) -> None:
    """Add rows to a cell."""
    counts = cells.setdefault(cell, [0, 0, 0, 0])
    for place, number in enumerate(more):
        counts[place] += number


def count_row(cells: Cells, probability: float, right: bool, bins: int) -> None:
    """Add one row to its cell, where there are so many bins."""
    gap = right - probability
    numbers = (1, int(right), round(probability * UNIT), round(gap * gap * UNIT))
    count(cells, cell_of(probability, bins * FINE), numbers)


def of_equal_width(cells: Mapping[int, Sequence[int]], bins: int) -> tuple[Bin, ...]:
    """All bins of one width, also the empty ones."""
    sums: Cells = {place: [0, 0, 0, 0] for place in range(bins)}
    for cell, counts in cells.items():
        count(sums, cell // FINE, counts)
    return tuple(_bin(place / bins, (place + 1) / bins, counts) for place, counts in sums.items())


def of_equal_mass(cells: Mapping[int, Sequence[int]], bins: int) -> tuple[Bin, ...]:
    """At most so many bins of about as many rows, at least two; rows of one cell stay together."""
    rows = sum(counts[0] for counts in cells.values())
    most = max(1, min(bins, rows // 2))
    groups: list[list[int]] = []  # of cells
    before, last = 0, -1
    for cell in sorted(cells):
        # A cell goes where its middle row belongs.
        middle = most * (2 * before + cells[cell][0]) // (2 * rows)
        if middle != last and (not groups or _rows(cells, groups[-1]) > 1):
            groups.append([])
        groups[-1].append(cell)
        before, last = before + cells[cell][0], middle
    if len(groups) > 1 and _rows(cells, groups[-1]) < 2:
        alone = groups.pop()
        groups[-1] += alone

    width = bins * FINE
    return tuple(
        _bin(group[0] / width, (group[-1] + 1) / width, _sums(cells, group)) for group in groups
    )


def _rows(cells: Mapping[int, Sequence[int]], group: Iterable[int]) -> int:
    return sum(cells[cell][0] for cell in group)


def _sums(cells: Mapping[int, Sequence[int]], group: Iterable[int]) -> list[int]:
    return [sum(column) for column in zip(*(cells[cell] for cell in group), strict=True)]


def _bin(low: float, high: float, counts: Sequence[int]) -> Bin:
    rows, right, probability, squares = counts
    return Bin(low, high, rows, right, probability / UNIT, squares / UNIT)
