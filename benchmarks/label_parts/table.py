"""The figures as Markdown: means, what the default costs and gains, and where raw is better."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any

from benchmarks.label_parts.levels import DEFAULT, RAW, SIZES

Cell = dict[str, Any]
NAMES = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma-3-270M"}
_ERROR, _GOOD = "calibration_error", 0.05


def markdown(figures: dict[str, Any]) -> str:
    """Return all tables, one after another."""
    cells, heads = figures["cells"], figures["heads"]
    parts = [means(cells, heads), verdict(cells), _each(cells)]
    return "\n\n".join(parts)


def means(cells: Sequence[Cell], heads: Sequence[Cell]) -> str:
    """Return a row for each subject and set: the means over its templates."""
    levels = [*cells[0]["levels"]]
    learned = [f"L2 of {size}" for size in SIZES]
    lines = [
        _row(["model, backend, set", *levels, *learned]),
        _rule(1 + len(levels) + len(learned)),
    ]
    for head in heads:
        own = [cell for cell in cells if all(cell[key] == head[key] for key in _SUBJECT)]
        name = f"{NAMES[head['model']]}, {head['backend']}, {head['set']}"
        means = [_two([cell["levels"][level] for cell in own]) for level in levels]
        lines.append(_row([name, *means, *(_two([head["levels"][level]]) for level in learned)]))
    all_means = [_two([cell["levels"][level] for cell in cells]) for level in levels]
    of_heads = [_two([head["levels"][level] for head in heads]) for level in learned]
    lines.append(_row(["mean of all", *all_means, *of_heads]))
    return "\n".join(["Accuracy in %, calibration error; means over the templates:", "", *lines])


_SUBJECT = ("model", "backend", "set")


def verdict(cells: Sequence[Cell]) -> str:
    """Compare the default with raw, and report a hundred labels on the largest set."""
    sides = [cell["default_beside_raw"] for cell in cells]
    worst = min(cells, key=lambda cell: float(cell["default_beside_raw"]["accuracy"]))
    known = [cell for cell in cells if _ERROR in cell["levels"][RAW]]
    lines = [
        f"{DEFAULT} compared with {RAW}, in {len(cells)} cells:",
        "",
        f"- accuracy: {100 * mean(s['accuracy'] for s in sides):+.1f} points on average, at worst "
        f"{100 * worst['default_beside_raw']['accuracy']:+.1f} ({_name(worst)})",
        f"- accuracy worse beyond the 95 % interval: {_listed(c for c in cells if _less(c))}",
        f"- raw more accurate at all: {_listed(c for c in cells if _accuracy(c) < 0)}",
    ]
    return "\n".join([*lines, *(_errors(known) if known else ())])


def _errors(cells: Sequence[Cell]) -> list[str]:
    """Return lines on the change of the calibration error, in the cells that have one."""
    before, after = (mean(c["levels"][level][_ERROR] for c in cells) for level in (RAW, DEFAULT))
    lines = [
        f"- calibration error, of {len(cells)} cells: {before:.3f} before, {after:.3f} after, on "
        "average",
        f"- calibration error worse beyond the 95 % interval: "
        f"{_listed(c for c in cells if _more(c))}",
    ]
    own = [cell for cell in cells if cell["set"] == "sentiment"]
    for level in cells[0]["levels"]:
        if level.startswith("L1") and own:
            errors = [cell["levels"][level][_ERROR] for cell in own]
            good = sum(error <= _GOOD for error in errors)
            lines.append(
                f"- {level}, on the 500 of sentiment: calibration error {mean(errors):.3f} on "
                f"average, at most {_GOOD} in {good} of {len(own)} cells"
            )
    return lines


def _each(cells: Sequence[Cell]) -> str:
    levels = [*cells[0]["levels"]]
    lines = [_row(["cell", "label mass", *levels]), _rule(2 + len(levels))]
    for cell in cells:
        values = [_two([cell["levels"][level]]) for level in levels]
        lines.append(_row([_name(cell), f"{cell['label_mass']:.3f}", *values]))
    return "\n".join(["Each cell:", "", *lines])


def _accuracy(cell: Cell) -> float:
    return float(cell["default_beside_raw"]["accuracy"])


def _less(cell: Cell) -> bool:
    return bool(cell["default_beside_raw"]["accuracy_interval"][1] < 0)


def _more(cell: Cell) -> bool:
    return bool(cell["default_beside_raw"]["squared_calibration_error_interval"][0] > 0)


def _listed(cells: Iterable[Cell]) -> str:
    return "; ".join(map(_name, cells)) or "none"


def _name(cell: Cell) -> str:
    return f"{cell['model']} {cell['backend']} {cell['set']} {cell['template']}"


def _two(figures: Sequence[dict[str, Any]]) -> str:
    """Accuracy, and the calibration error of those figures that have one."""
    accuracy = f"{100 * mean(metrics['accuracy'] for metrics in figures):.1f}"
    errors = [metrics[_ERROR] for metrics in figures if _ERROR in metrics]
    return f"{accuracy}, {mean(errors):.3f}" if errors else accuracy


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(count: int) -> str:
    return "|" + "---|" * count
