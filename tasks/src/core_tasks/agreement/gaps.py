"""Calibration error: the distance of probabilities from accuracy, with its uncertainty.

The top-label calibration error of A. Kumar, P. Liang and T. Ma, Verified uncertainty calibration,
NeurIPS 2019: the root of the mean, over bins of equally many rows, of the squared distance of
accuracy and confidence. The distance expected by chance in few rows is subtracted, as in their
section 4: the variance of each bin's distance from its square, so that the square is unbiased.
Otherwise an error of 0 in 200 rows would be reported as 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core_tasks.agreement.measures import Z_95, share

Cells = dict[int, list[int]]
"""Cells by number: rows, correct rows, and the sums of probabilities and squared gaps in units."""

FINE = 1024  # cells in a bin of equal width: rows of one cell stay together
UNIT = 2**30  # sums are integers in units of 1/UNIT: 64 bits are enough for 8 billion rows


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose probability is in ``(low, high]``; the first bin has 0 as well.

    A row's gap is 1 or 0, for right or wrong, minus its probability.
    """

    low: float
    high: float
    count: int
    right: int
    probability: float  # summed over the rows
    squares: float  # of the gaps, summed

    @property
    def accuracy(self) -> float | None:
        """The share of correct answers."""
        return share(self.right, self.count)

    @property
    def confidence(self) -> float | None:
        """The mean of the probabilities."""
        return share(self.probability, self.count)

    @property
    def gap(self) -> float:
        """The mean of the gaps."""
        return (self.right - self.probability) / self.count

    @property
    def variance(self) -> float:
        """The unbiased variance of the mean gap; 0 for a single row."""
        if self.count < 2:
            return 0.0
        spread = self.squares - self.count * self.gap**2
        return max(0.0, spread) / (self.count * (self.count - 1))


@dataclass(frozen=True, slots=True)
class CalibrationError:
    """Calibration error. ``squared`` is an unbiased estimate, often negative for an error of 0.

    ``variance`` is the variance of that estimate.
    """

    squared: float
    variance: float

    @property
    def value(self) -> float:
        """The error, on the scale of probabilities."""
        return math.sqrt(max(0.0, self.squared))

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the error, from the normal interval of its square."""
        reach = Z_95 * math.sqrt(self.variance)
        low, high = self.squared - reach, self.squared + reach
        return math.sqrt(max(0.0, low)), math.sqrt(min(1.0, max(0.0, high)))


def calibration_error(bins: Sequence[Bin]) -> CalibrationError | None:
    """Return the calibration error of bins that have rows; None without any row."""
    rows = sum(bin.count for bin in bins)
    if not rows:
        return None
    squared, variance = [], []
    for bin in bins:
        weight = bin.count / rows
        apart = bin.gap**2 - bin.variance

        # With one more row of each kind: even if all are right, the share is uncertain.
        likely = (bin.right + 1) / (bin.count + 2)
        unsure = likely * (1 - likely) / bin.count
        squared.append(weight * apart)
        variance.append(weight**2 * (4 * max(0.0, apart) * unsure + 2 * unsure**2))
    return CalibrationError(math.fsum(squared), math.fsum(variance))


def error_text(value: float, interval: Sequence[float]) -> str:
    """Return a calibration error with its interval, as programs print it."""
    low, high = interval
    return f"calibration error {value:.3f} ({low:.3f} to {high:.3f})"


def cell_of(probability: float, cells: int) -> int:
    """Return the number, from 0, of the cell ``((m - 1)/cells, m/cells]`` of a probability."""
    return min(cells - 1, max(0, math.ceil(probability * cells) - 1))


def count(cells: Cells, cell: int, more: Sequence[int]) -> None:
    """Add rows to a cell."""
    counts = cells.setdefault(cell, [0, 0, 0, 0])
    for place, number in enumerate(more):
        counts[place] += number


def count_row(cells: Cells, probability: float, right: bool, bins: int) -> None:
    """Add one row to its cell, for this number of bins."""
    gap = right - probability
    numbers = (1, int(right), round(probability * UNIT), round(gap * gap * UNIT))
    count(cells, cell_of(probability, bins * FINE), numbers)


def of_equal_width(cells: Mapping[int, Sequence[int]], bins: int) -> tuple[Bin, ...]:
    """Return all bins of equal width, including empty ones."""
    sums: Cells = {place: [0, 0, 0, 0] for place in range(bins)}
    for cell, counts in cells.items():
        count(sums, cell // FINE, counts)
    return tuple(_bin(place / bins, (place + 1) / bins, counts) for place, counts in sums.items())


def of_equal_mass(cells: Mapping[int, Sequence[int]], bins: int) -> tuple[Bin, ...]:
    """Return at most ``bins`` bins of about equally many rows (at least two) and whole cells."""
    rows = sum(counts[0] for counts in cells.values())
    most = max(1, min(bins, rows // 2))
    groups: list[list[int]] = []  # of cells
    before, last = 0, -1
    for cell in sorted(cells):
        # A cell belongs to the bin of its middle row.
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
