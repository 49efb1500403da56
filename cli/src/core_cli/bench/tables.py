"""Measurements as rows of a table, as Markdown, and as a drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from core_cli.bench.measuring import Measurement
from core_tasks.svg import bar, document, text

COLUMNS = ("model", "backend", "test", "rate", "unit", "ratio", "note")
_WIDTH, _LEFT, _LINE, _TOP = 860, 300, 22, 56  # pixels


def rows(measurements: Sequence[Measurement]) -> list[list[str]]:
    """Return a row for each, the rate with its standard deviation, the ratio to the first of its
    test.
    """
    first: dict[str, float] = {}
    found = []
    for each in measurements:
        mean, ratio = each.mean, ""
        if mean is not None:
            base = first.setdefault(each.case.name, mean)
            if base != mean:
                ratio = f"{mean / base:.2f}"
        told = "-" if mean is None else f"{figure(mean)} ± {figure(each.spread or 0.0)}"
        found.append(
            [
                *(each.contestant, each.backend, each.case.name, told),
                *(each.case.unit if mean is not None else "", ratio, each.note),
            ]
        )
    return found


def markdown(measurements: Sequence[Measurement]) -> str:
    """Return the table as llama-bench prints it; columns without any value are left out."""
    cells = rows(measurements)
    kept = [n for n in range(len(COLUMNS)) if any(row[n] for row in cells)]
    lines = [[COLUMNS[n] for n in kept], ["---:" if n == 3 else "---" for n in kept]]
    lines += [[row[n].replace("|", "\\|") for n in kept] for row in cells]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def svg(measurements: Sequence[Measurement], title: str = "") -> str:
    """Return bars of all tests, each scaled by its greatest mean; for ``ttft`` short is good."""
    groups: dict[str, list[Measurement]] = {}
    for each in measurements:
        if each.mean is not None:
            groups.setdefault(each.case.name, []).append(each)
    drawn: list[str] = [text(20, 26, title or "Benchmarks", 15, weight="bold")]
    y = float(_TOP)
    for name, group in groups.items():
        drawn += chain([text(20, y + 12, f"{name}, {group[0].case.unit}", 12)], _bars(group, y))
        y += _LINE * len(group) + 14
    return document(_WIDTH, y + 20, drawn)


def _bars(group: Sequence[Measurement], y: float) -> Iterator[str]:
    most = max(each.mean or 0.0 for each in group) or 1.0
    for number, each in enumerate(group):
        mean, top = each.mean or 0.0, y + number * _LINE
        told = f"{each.contestant}, {each.backend}: {figure(mean)} ± {figure(each.spread or 0.0)}"
        yield bar(_LEFT, top, 380 * mean / most, _LINE - 6, 0.6, told)
        who = each.backend if len(each.contestant) > 24 else f"{each.contestant}, {each.backend}"
        yield text(_LEFT - 6, top + 12, who, 11, "end")
        yield text(_LEFT + 386 * mean / most + 4, top + 12, figure(mean), 11)


def figure(value: float) -> str:
    """Return a number with at least three digits, without meaningless decimals."""
    if value >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 1 else f"{value:.3g}"
