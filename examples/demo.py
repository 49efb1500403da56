"""Sort news sentences into four fields with a 135-million-parameter model, on this machine.

Run it with ``make demo``, or, with the model converted and `core[mlx]` installed,
``python examples/demo.py``. `classify_sentences` is the part to copy. Exits with 1 when fewer than
nine in ten sentences get the expected label.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

import core

LABELS = ("finance", "sports", "science", "technology")
TEMPLATE = "{text} This news is about"
GOOD_ENOUGH = 0.9
SENTENCES = Path(__file__).with_name("headlines.jsonl")


def classify_sentences(
    model: core.TextModel, sentences: Sequence[str]
) -> list[core.ClassifyResult]:
    """Return one result per sentence, with its likeliest label."""
    prompts = [TEMPLATE.format(text=sentence) for sentence in sentences]
    if isinstance(model, core.Declaring) and core.Capability.LABEL_SENTENCES in model.declared():
        prompts = list(sentences)  # an encoder reads the text alone
    results = model.classify(prompts, labels=LABELS)
    for sentence, result in zip(sentences, results, strict=True):
        if result.error is not None:  # one bad prompt never takes the others down
            print(f"{sentence!r}: {result.error}", file=sys.stderr)
    return results


def main() -> int:
    """Load the model, classify and show the results; return the exit code."""
    arguments = parse_arguments()
    rows = [json.loads(line) for line in SENTENCES.read_text(encoding="utf-8").splitlines()]
    try:
        with core.load_model(arguments.model, backend=arguments.backend) as model:
            started = time.perf_counter()
            results = classify_sentences(model, [row["text"] for row in rows])
            seconds = time.perf_counter() - started
            choices = model.choices() if isinstance(model, core.Explaining) else ()
    except core.CoreError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(results_table(rows, results))
    return report(console, rows, results, seconds, choices)


def parse_arguments() -> argparse.Namespace:
    """``--model DIR`` and ``--backend NAME``; without them, the demo's model, the best backend."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description="Sort news sentences into four fields.")
    parser.add_argument(
        "--model", type=Path, default=cache / "core" / "models" / "smollm2-135m-instruct"
    )
    parser.add_argument("--backend", default="", help="default: the best one available")
    return parser.parse_args()


def results_table(rows: Sequence[dict[str, str]], results: Sequence[core.ClassifyResult]) -> Table:
    """Return one line per sentence, with a mark if the label is not the expected one."""
    table = Table("sentence", "expected", "label", "probability", "right")
    table.columns[3].justify = "right"
    table.box = box.SIMPLE
    for row, result in zip(rows, results, strict=True):
        label = result.label or "-"
        probability = (result.probabilities or {}).get(label, 0.0)
        mark = "[green]yes" if label == row["label"] else "[red]no"
        table.add_row(row["text"], row["label"], label, f"{probability:.2f}", mark)
    return table


def report(
    console: Console,
    rows: Sequence[dict[str, str]],
    results: Sequence[core.ClassifyResult],
    seconds: float,
    choices: Sequence[core.Choice],
) -> int:
    """Print accuracy, speed and what did it; 0 when the accuracy is good enough, else 1."""
    right = sum(row["label"] == result.label for row, result in zip(rows, results, strict=True))
    accuracy = right / len(rows)
    console.print(f"{right} of {len(rows)} as expected: accuracy {accuracy:.1%}")
    console.print(f"{len(rows) / seconds:.1f} sentences/s ({seconds:.2f} s in classify)")
    for choice in choices:
        console.print(f"{choice.name}: {choice.value} ({choice.reason})", markup=False)
    if accuracy >= GOOD_ENOUGH:
        return 0
    console.print(f"[red]Fewer than {GOOD_ENOUGH:.0%} as expected.")
    return 1


if __name__ == "__main__":
    sys.exit(main())
