"""What a head costs and how much it gets right: 256 prompts, a fit on 16 texts, 20 splits.

A head learns from four headlines of each of four labels (`examples/headlines.jsonl`) and judges the
other 56; these choose nothing. The labels' own names and arbitrary ones take part alike::

    make models
    python benchmarks/heads.py [--models smollm2 gemma3] [--backend mlx_cpu] [--turns 5]

Prints one JSON object a model:

- ``prompts_ms``: `hidden_states` of 256 texts, the median of ``--turns``
- ``paired_ratio``: `FewShot.classify` of them by that, each turn beside its own; the median
- ``control_ratio``: the same of `hidden_states` by itself: what the machine's noise makes of 1
- ``head_ms``, ``added_percent``: `FewShot.classify` where the states are there already, and its
  share of ``prompts_ms``: what tells the cost where the control is far from 1
- ``fit_s``: `FewShot.fit` of 16 texts, the model's work included: the median of ``--turns``,
  and the longest
- ``right``, ``right_arbitrary``: the mean share of 56 rows over 20 splits, with ``_least``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")  # no g++ may be here

import numpy as np

import core
from benchmarks.label_parts.asking import BACKENDS, MODELS, path_of
from core_learn import FewShot

ROOT = Path(__file__).resolve().parents[1]
PROMPTS, SPLITS, OF_EACH = 256, 20, 4
ARBITRARY = ("qix", "blap", "zorn", "mev")
"""Names that say nothing, in an order that is not that of the labels they stand for."""

Rows = list[dict[str, str]]


class Known:
    """A model that computes the states of a text once, and then has them."""

    def __init__(self, model: Any) -> None:
        self.info, self._model = model.info, model
        self._found: dict[tuple[str, tuple[int, ...]], core.HiddenResult] = {}

    def hidden_states(
        self, prompts: Sequence[str], config: object = None, *, layers: Sequence[int] = (-1,)
    ) -> list[core.HiddenResult]:
        """As `core.HiddenStates` has it."""
        wanted = [(prompt, tuple(layers)) for prompt in prompts]
        if missing := [key for key in dict.fromkeys(wanted) if key not in self._found]:
            asked = self._model.hidden_states([prompt for prompt, _ in missing], layers=layers)
            self._found.update(zip(missing, asked, strict=True))
        return [self._found[key] for key in wanted]


def rows_of(file: str) -> Rows:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in (ROOT / file).read_text("utf-8").splitlines()]


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def split(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Rows to learn from, four of each label, and the others."""
    random, some = np.random.default_rng(seed), set[int]()
    for label in sorted({row["label"] for row in rows}):
        places = [place for place, row in enumerate(rows) if row["label"] == label]
        some.update(random.permutation(places)[:OF_EACH].tolist())
    chosen = [row for place, row in enumerate(rows) if place in some]
    return chosen, [row for place, row in enumerate(rows) if place not in some]


def renamed(rows: Rows) -> Rows:
    """The same rows, their labels under arbitrary names."""
    names = dict(zip(sorted({row["label"] for row in rows}), ARBITRARY, strict=True))
    return [{**row, "label": names[row["label"]]} for row in rows]


def fitted(model: Any, rows: Rows) -> FewShot:
    """A head that has learned from these rows."""
    return FewShot(model).fit([row["text"] for row in rows], [row["label"] for row in rows])


def share_right(model: Any, rows: Rows, seed: int) -> float:
    """The share of the rows a head gets right that it has not learned from."""
    learned, judged = split(rows, seed)
    found = fitted(model, learned).predict([row["text"] for row in judged])
    right = [label == row["label"] for label, row in zip(found, judged, strict=True)]
    return statistics.mean(right)


def costs(model: Any, turns: int) -> dict[str, float]:
    """What a head adds to a call of 256 prompts."""
    learned, _ = split(rows_of("examples/headlines.jsonl"), 0)
    few = fitted(model, learned)
    prompts = [row["text"] for row in rows_of("benchmarks/labelled/topics.jsonl")][:PROMPTS]

    works: dict[str, Callable[[], object]] = {
        "alone": lambda: model.hidden_states(prompts, layers=(few.head.layer,)),
        "again": lambda: model.hidden_states(prompts, layers=(few.head.layer,)),
        "headed": lambda: few.classify(prompts),
    }
    few.classify(prompts)  # what is done once
    took: dict[str, list[float]] = {name: [] for name in works}
    for turn in range(turns):
        first = turn % len(works)  # no call is always the first of its turn
        for name in [*works, *works][first : first + len(works)]:
            took[name].append(seconds(works[name]))
    whole = statistics.median(took["alone"])

    few.model = Known(model)
    few.classify(prompts)  # from here on the states are there
    head = statistics.median(seconds(lambda: few.classify(prompts)) for _ in range(20))
    return {
        "prompts_ms": whole * 1000,
        "paired_ratio": _paired(took["headed"], took["alone"]),
        "control_ratio": _paired(took["again"], took["alone"]),
        "head_ms": head * 1000,
        "added_percent": 100 * head / whole,
    }


def _paired(some: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(some, others, strict=True))


def fits(model: Any, turns: int) -> dict[str, float]:
    """How long it takes to learn arbitrary names from 16 texts, the model's work included."""
    rows = renamed(rows_of("examples/headlines.jsonl"))
    took = [seconds(partial(fitted, model, split(rows, seed)[0])) for seed in range(turns)]
    return {"fit_s": statistics.median(took), "fit_s_most": max(took)}


def accuracies(model: Any) -> dict[str, float]:
    """How much is right over all splits, by the labels' own names and by arbitrary ones."""
    known, rows = Known(model), rows_of("examples/headlines.jsonl")
    own = [share_right(known, rows, seed) for seed in range(SPLITS)]
    other = [share_right(known, renamed(rows), seed) for seed in range(SPLITS)]
    return {
        "right": statistics.mean(own),
        "right_least": min(own),
        "right_arbitrary": statistics.mean(other),
        "right_arbitrary_least": min(other),
    }


def main() -> None:
    """Measure each model, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--backend", choices=BACKENDS, default=BACKENDS[0])
    parser.add_argument("--turns", type=int, default=5, help="paired calls; default 5")
    given = parser.parse_args()
    for name in given.models:
        with core.load_model(str(path_of(name, given.backend)), backend=given.backend) as model:
            figures = {**costs(model, given.turns), **fits(model, given.turns), **accuracies(model)}
        told = {key: round(value, 4) for key, value in figures.items()}
        print(json.dumps({"model": name, "backend": given.backend, **told}), flush=True)


if __name__ == "__main__":
    main()
