"""Teach a 135-million-parameter model four labels with meaningless names, on this machine.

Run it with ``make demo-train``, or, with the model converted and `core[mlx,learn]` installed,
``python examples/train_labels.py``. `trained` is the part to copy. Five times, 48 headlines are
drawn as the training set; the accuracy on the other 24 is measured before and after a fixed number
of training steps, and for comparison with a head on the model's hidden states, which does not train
the model. Exits with 1 if the mean accuracy after training is below 90 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import core
import core_tasks

NAMES = {"finance": "qix", "sports": "blap", "science": "zorn", "technology": "mev"}
TEMPLATE = "{text} This news is about"
HELD_OUT, STEPS, SEEDS = 6, 40, 5  # of each label; of one training; trainings
GOOD_ENOUGH = 0.9
HEADLINES = Path(__file__).with_name("headlines.jsonl")

Rows = list[tuple[str, str]]  # texts and labels
Shares = tuple[float, float, float | None]  # right before, trained, and by a head


def trained(model: Any, rows: Rows, seed: int, steps: int) -> None:
    """Train an adapter in place on texts and their labels."""
    config = core.TrainConfig(
        template=TEMPLATE,
        labels=tuple(NAMES.values()),
        learning_rate=1e-4,
        iterations=steps,
        seed=seed,
    )
    examples = [core.TrainingExample(text=text, label=label) for text, label in rows]
    for step in model.train(examples, config):
        show(f"seed {seed}: step {step.step}/{steps}, loss {step.loss:.3f}")


def share_right(model: core.TextModel, rows: Rows) -> float:
    """Return the share of the rows that get their label."""
    task = core_tasks.Task(TEMPLATE, tuple(NAMES.values()))
    decisions = task.classify(model, [text for text, _ in rows])
    right = [decision.label == label for decision, (_, label) in zip(decisions, rows, strict=True)]
    return statistics.mean(right)


def share_right_of_head(model: core.TextModel, learned: Rows, judged: Rows) -> float | None:
    """Return the same for a head trained on the same rows; None without infercore-learn."""
    try:
        from core_learn import FewShot
    except ImportError:
        return None
    texts, labels = zip(*learned, strict=True)
    predicted = FewShot(model).fit(texts, labels).predict([text for text, _ in judged])
    pairs = zip(predicted, judged, strict=True)
    return statistics.mean(label == gold for label, (_, gold) in pairs)


def split(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Rows to learn from, and those to judge: six of each label, drawn by the seed."""
    dice, judged = random.Random(seed), list[tuple[str, str]]()
    for label in NAMES.values():
        judged += dice.sample([row for row in rows if row[1] == label], HELD_OUT)
    return [row for row in rows if row not in judged], judged


def trainer() -> str:
    """The name of the first backend that runs here and trains; empty without one."""
    known = (core.backend_status(entry.name) for entry in core.backends())
    trains = core.Capability.TRAINABLE
    return next((each.name for each in known if each.available and trains in each.capabilities), "")


def show(line: str) -> None:
    """Show a line on a terminal, over the one before."""
    if sys.stderr.isatty():
        print(f"\r{line:<60}\r", end="", file=sys.stderr, flush=True)


def main() -> int:
    """Train and evaluate with each seed and show the results; return the exit code."""
    given = parse_arguments()
    lines = HEADLINES.read_text(encoding="utf-8").splitlines()
    rows = [(row["text"], NAMES[row["label"]]) for row in map(json.loads, lines)]
    started = time.perf_counter()
    results: list[Shares] = []
    try:
        with core.load_model(given.model, backend=given.backend or trainer()) as base:
            for seed in range(given.seeds):
                learned, judged = split(rows, seed)
                assert isinstance(base, core.Adapting)
                with base.with_adapter(None) as model:
                    before = share_right(model, judged)
                    trained(model, learned, seed, given.steps)
                    after = share_right(model, judged)
                results.append((before, after, share_right_of_head(base, learned, judged)))
                show("")
                print(f"seed {seed}: {in_words(results[-1])}", flush=True)
    except core.CoreError as error:
        print(f"train_labels: {error}", file=sys.stderr)
        return 1
    return report(results, time.perf_counter() - started)


def in_words(shares: Shares) -> str:
    """Three shares in words."""
    names = ("before", "trained", "head without training")
    pairs = zip(names, shares, strict=True)
    return ", ".join(f"{name} {share:.1%}" for name, share in pairs if share is not None)


def report(results: Sequence[Shares], seconds: float) -> int:
    """The means, and whether they are good enough."""
    heads = [head for _, _, head in results if head is not None]
    before = statistics.mean(shares[0] for shares in results)
    after = statistics.mean(shares[1] for shares in results)
    means = before, after, statistics.mean(heads) if heads else None
    print(f"mean of {len(results)}: {in_words(means)}; {seconds:.0f} s in all")
    return 0 if after >= GOOD_ENOUGH else 1


def parse_arguments() -> argparse.Namespace:
    """``--model DIR``, ``--backend NAME``, ``--seeds N`` and ``--steps N``."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser = argparse.ArgumentParser(description="Teach a small model four labels.")
    parser.add_argument(
        "--model", type=Path, default=cache / "core" / "models" / "smollm2-135m-instruct"
    )
    parser.add_argument("--backend", default="", help="default: the first that trains")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
