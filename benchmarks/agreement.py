"""Compare the labels of ``openvino`` in its narrower dtypes with those that it gives in float32.

All rows of ``labelled/``, with each template of their sets, on one thread. Labels are compared on
all rows, and on those where float32's best label is ahead by more than 0.02::

    make models
    python benchmarks/agreement.py --json benchmarks/results/agreement.json

Prints the table in docs/speed.md. ``--table FILE ...`` prints that of reports made before.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import core
from benchmarks import machine
from benchmarks.classify_parts.contestants import MODELS, fetch
from benchmarks.label_parts.sets import LabelledSet, load_sets
from core_openvino.availability import cpu_device
from core_tasks.task import Task

CLEAR = 0.02  # a margin, above which a label is clear
WIDE, NARROW = "float32", ("bfloat16", "int8")
_COLUMNS = (
    "model",
    "dtype",
    "instructions",
    "labels of all rows",
    "of rows with a margin above 0.02",
    "accuracy, change",
)


class Labelled(NamedTuple):
    """The label of a row, its margin over the second best, and whether it is right."""

    label: str
    margin: float
    is_right: bool


def labels_of(directory: str, dtype: str, sets: Sequence[LabelledSet]) -> list[Labelled]:
    """Return the results of all rows, with all templates."""
    options = {"dtype": dtype, "n_threads": 1}
    rows = []
    with core.load_model(directory, backend="openvino", options=options) as model:
        for of in sets:
            right = [of.labels[number] for number in of.gold]
            for template in of.templates.values():
                results = Task(template, of.labels).classify(model, of.texts)
                for result, label in zip(results, right, strict=True):
                    decision = result.raise_for_error()
                    is_right = decision.label == label
                    rows.append(Labelled(str(decision.label), decision.margin or 0.0, is_right))
    return rows


def compared(wide: Sequence[Labelled], narrow: Sequence[Labelled]) -> dict[str, float]:
    """Return counts of rows and of equal labels, and the shares of right ones."""
    pairs = list(zip(wide, narrow, strict=True))
    clear = [(a, b) for a, b in pairs if a.margin > CLEAR]
    return {
        "rows": len(pairs),
        "equal": sum(a.label == b.label for a, b in pairs),
        "clear_rows": len(clear),
        "clear_equal": sum(a.label == b.label for a, b in clear),
        "accuracy": sum(row.is_right for row in narrow) / len(pairs),
        "accuracy_of_float32": sum(row.is_right for row in wide) / len(pairs),
    }


def measure(models: Sequence[str]) -> dict[str, Any]:
    """Run everything."""
    sets = load_sets([])
    rows = []
    for model in models:
        directory = fetch(model).directory
        wide = labels_of(directory, WIDE, sets)
        for dtype in NARROW:
            figures = compared(wide, labels_of(directory, dtype, sets))
            rows.append({"model": model, "dtype": dtype, **figures})
            print(rows[-1], file=sys.stderr, flush=True)
    about = {**machine.describe(1), "instructions": cpu_device().detail}
    return {"machine": about, "results": rows}


def table(reports: Sequence[dict[str, Any]]) -> str:
    """Return a line for each model, dtype and report."""
    lines = [_COLUMNS, ["---"] * len(_COLUMNS)]
    lines += [
        _line(row, written["machine"]["instructions"])
        for rows in zip(*(written["results"] for written in reports), strict=True)
        for row, written in zip(rows, reports, strict=True)
    ]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _line(row: dict[str, Any], instructions: str) -> list[str]:
    change = 100 * (row["accuracy"] - row["accuracy_of_float32"])
    return [
        row["model"],
        row["dtype"],
        "AMX" if "AMX" in instructions else instructions,
        f"{row['equal'] / row['rows']:.2%} of {row['rows']:,}",
        f"{row['clear_equal'] / row['clear_rows']:.2%} of {row['clear_rows']:,}",
        f"{change:+.2f} points",
    ]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--json", type=Path, metavar="FILE", help="Write the figures.")
    parser.add_argument("--table", nargs="+", type=Path, metavar="FILE", help="Measure nothing.")
    arguments = parser.parse_args()
    if arguments.table:
        print(table([json.loads(file.read_text()) for file in arguments.table]), end="")
        return
    written = measure(arguments.models)
    if arguments.json:
        arguments.json.write_text(json.dumps(written, indent=1) + "\n")
    print(table([written]), end="")


if __name__ == "__main__":
    main()
