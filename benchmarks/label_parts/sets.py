"""The labelled sets, their rows divided into fitting and evaluation rows."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "labelled"
FITTING = 100  # rows


@dataclass(frozen=True, slots=True)
class LabelledSet:
    """Texts with the numbers of their labels; ``fitting`` and ``evaluation`` are row numbers."""

    name: str
    labels: tuple[str, ...]
    templates: dict[str, str]
    texts: list[str]
    gold: list[int]
    fitting: list[int]
    evaluation: list[int]


def load_sets(names: list[str]) -> list[LabelledSet]:
    """The sets of these names, or all."""
    with open(FOLDER / "sets.toml", "rb") as file:
        described = tomllib.load(file)
    return [_load(name, described[name]) for name in names or described]


def _load(name: str, facts: dict[str, object]) -> LabelledSet:
    labels = tuple(map(str, facts["labels"]))  # type: ignore[call-overload]
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").strip().split("\n")
    rows = [json.loads(line) for line in lines]
    gold = [labels.index(row["label"]) for row in rows]

    # Labels take turns: the first row of each, in the file's order, then the second of each.
    seen, turns = Counter[int](), list[tuple[int, int]]()
    for label in gold:
        turns.append((seen[label], label))
        seen[label] += 1
    order = sorted(range(len(rows)), key=turns.__getitem__)
    fitting, evaluation = sorted(order[:FITTING]), sorted(order[FITTING:])
    templates: dict[str, str] = facts["templates"]  # type: ignore[assignment]
    texts = [row["text"] for row in rows]
    return LabelledSet(name, labels, templates, texts, gold, fitting, evaluation)
