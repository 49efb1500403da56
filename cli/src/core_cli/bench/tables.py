"""Measurements as rows of a table, as Markdown, and as a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from core_cli.bench.measuring import Measurement
from core_tasks.svg import bar, document, text

COLUMNS = ("model", "backend", "test", "rate", "unit", "ratio", "note")
_WIDTH, _LEFT, _LINE, _TOP = 860, 300, 22, 56  # pixels


def rows(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Return a row per measurement: its rate with standard deviation, and its ratio to the first
    measurement of the same test.
    """
    first: dict[str, float] = {}
    table = []
    for measurement in measurements:
        mean, ratio = measurement.mean, ""
        if mean is not None:
            base = first.setdefault(measurement.case.name, mean)
            if base != mean:
                ratio = f"{mean / base:.2f}"
        rate = "-" if mean is None else f"{figure(mean)} ± {figure(measurement.spread or 0.0)}"
        table.append(
            [
                *(measurement.contestant, measurement.backend, measurement.case.name, rate),
                *(measurement.case.unit if mean is not None else "", ratio, measurement.note),
            ]
        )
    return table


def markdown(measurements: Sequence[Measurement]) -> str:
    """Return the table as llama-bench prints it; columns without any value are omitted."""
    cells = rows(measurements)
    filled = [n for n in range(len(COLUMNS)) if any(row[n] for row in cells)]
    lines = [[COLUMNS[n] for n in filled], ["---:" if n == 3 else "---" for n in filled]]
    lines += [[row[n].replace("|", "\\|") for n in filled] for row in cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def svg(measurements: Sequence[Measurement], title: str = "") -> str:
    """Return bars of all tests, scaled by the greatest mean; shorter is better for ``ttft``."""
    groups: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        if measurement.mean is not None:
            groups.setdefault(measurement.case.name, []).append(measurement)
    drawn: list[str] = [text(20, 26, title or "Benchmarks", 15, weight="bold")]
    y = float(_TOP)
    for name, group in groups.items():
        drawn += chain([text(20, y + 12, f"{name}, {group[0].case.unit}", 12)], _bars(group, y))
        y += _LINE * len(group) + 14
    return document(_WIDTH, y + 20, drawn)


def _bars(group: Sequence[Measurement], y: float) -> Iterator[str]:
    most = max(measurement.mean or 0.0 for measurement in group) or 1.0
    for number, measurement in enumerate(group):
        mean, top = measurement.mean or 0.0, y + number * _LINE
        name = f"{measurement.contestant}, {measurement.backend}"
        title = f"{name}: {figure(mean)} ± {figure(measurement.spread or 0.0)}"
        yield bar(_LEFT, top, 380 * mean / most, _LINE - 6, 0.6, title)
        who = measurement.backend if len(measurement.contestant) > 24 else name
        yield text(_LEFT - 6, top + 12, who, 11, "end")
        yield text(_LEFT + 386 * mean / most + 4, top + 12, figure(mean), 11)


def figure(value: float) -> str:
    """Return a number with at least three digits, without meaningless decimals."""
    if value >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"
