"""The figures as Markdown, and the goals that they are held against.

    python -m benchmarks.encoder_parts.tables FILE.json

prints them from a report of ``encoder.py --json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.encoder_parts.contestants import MLX, ONNX, OURS
from benchmarks.encoder_parts.quality import SENTENCES, SPECIAL, means

Figures = Mapping[str, Any]
_SETS = ("topics", "sentiment", "tickets")
_HEAD = "8"  # labelled rows of each label


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal in words, its figure, and the least that was wanted."""

    words: str
    figure: float
    least: float
    unit: str = ""
    digits: int = 1

    @property
    def met(self) -> bool:
        """True if the figure reaches the least wanted."""
        return self.figure >= self.least


def goals(contestants: Figures) -> list[Goal]:
    """Return the goals whose contestants took part."""
    return [*_speed(contestants), *_quality(contestants)]


def _speed(contestants: Figures) -> Iterator[Goal]:
    pairs = [
        ("float32", ONNX["float32"], 1.0),
        ("bfloat16", OURS["float32"], 1.7),
        ("int8", ONNX["int8"], 1.1),
        ("float32", MLX, 12.0),
        ("bfloat16", MLX, 22.0),
        ("int8", MLX, 30.0),
    ]
    for dtype, other, least in pairs:
        if OURS[dtype] in contestants and other in contestants:
            times = contestants[other]["cpu_ms"] / contestants[OURS[dtype]]["cpu_ms"]
            yield Goal(f"{dtype}: times the rows of {other}", times, least, " x", 2)


def _quality(contestants: Figures) -> Iterator[Goal]:
    exact, rounded = (contestants.get(OURS[dtype]) for dtype in ("float32", "int8"))
    if exact is None:
        return
    accuracy = exact["accuracy"]
    wanted = (("topics", "plain", 93), ("tickets", "plain", 70), ("tickets", "prior", 75))
    for name, kind, least in wanted:
        if name in accuracy:
            yield Goal(f"{name}, {kind}", 100 * accuracy[name][kind], least, " %")
    if "tickets" in exact.get("heads", {}):
        figure = 100 * exact["heads"]["tickets"][_HEAD]
        yield Goal(f"tickets, head of {_HEAD} rows a label", figure, 85, " %")
    if rounded is not None:
        least = rounded["cosine"]["least"]
        yield Goal("int8: least cosine to float32", least, 0.997, digits=6)
        for name, figures in accuracy.items():
            for kind in ("plain", "prior"):
                change = 100 * (rounded["accuracy"][name][kind] - figures[kind])
                yield Goal(f"int8: {name}, {kind}, change", change, -0.5, " points")


def told(held: Sequence[Goal]) -> str:
    """Return a line for each goal."""
    lines = [
        [goal.words, f"{goal.figure:.{goal.digits}f}{goal.unit}", f"{goal.least:g}{goal.unit}",
         "yes" if goal.met else "**no**"]
        for goal in held
    ]  # fmt: skip
    return _table(["goal", "measured", "at least", "met"], lines)


def peers(report: Figures) -> str:
    """Return a line for each contestant: its time, cosine, and accuracies."""
    columns = ["", "CPU ms a row", "cosine to float32", "same labels"]
    columns += [f"{name}, plain / prior" for name in _SETS] + [f"{name}, head" for name in _SETS]
    lines = []
    for name, own in report["contestants"].items():
        cells = [name, f"{own['cpu_ms']:.2f}"]
        cells.append(f"{own['cosine']['least']:.4f}" if "cosine" in own else "-")
        labels = own.get("labels")
        cells.append(f"{labels['same']:,} of {labels['compared']:,}" if labels else "-")
        heads = [own.get("heads", {}).get(of) for of in _SETS]
        cells += [_two(own.get("accuracy", {}).get(of)) for of in _SETS]
        cells += [f"{100 * by_size[_HEAD]:.1f}" if by_size else "-" for by_size in heads]
        lines.append(cells)
    return _table(columns, lines)


def sentences(report: Figures) -> str:
    """Return a line for each label sentence, and the mean and the worst of the general ones."""
    measured = report["sentences"]
    columns = ["label sentence", *(f"{name}, plain / prior" for name in _SETS), "mean"]
    lines = []
    for sentence in (*SENTENCES, *SPECIAL):
        own = measured.get(sentence, {})
        kinds = {kind: means([*own.values()], kind) for kind in ("plain", "prior")} if own else None
        lines.append([f"`{sentence}`", *(_two(own.get(name)) for name in _SETS), _two(kinds)])
    general = [measured[sentence] for sentence in SENTENCES if sentence in measured]
    for title, over in (("mean of the general ones", _mean), ("worst of them", min)):
        cells = [
            _two({kind: over([own[name][kind] for own in general]) for kind in ("plain", "prior")})
            if all(name in own for own in general) and general
            else "-"
            for name in _SETS
        ]
        lines.append([title, *cells, "-"])
    return _table(columns, lines)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _two(figures: Figures | None) -> str:
    if not figures:
        return "-"
    return f"{100 * figures['plain']:.1f} / {100 * figures['prior']:.1f}"


def _table(columns: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---", *["---:"] * (len(columns) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in [columns, rule, *lines])


def main() -> None:
    """Print everything from a report of ``encoder.py --json``."""
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    all_goals = goals(report["contestants"])
    print("\n".join([peers(report), sentences(report), told(all_goals)]))


if __name__ == "__main__":
    main()
