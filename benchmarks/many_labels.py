"""The cost of a label: rows per CPU second for 4, 20 and 77 labels, with and without labels_only.

SmolLM2-135M, one thread, messages of a bank's customers (labelled/bank.toml) and labels of two to
nine tokens. Everything takes turns, and medians count; nothing is kept between two calls::

    python benchmarks/many_labels.py [--rows 32] [--runs 5] [--backends mlx_cpu,llama_cpp]
                                     [--json FILE]

``nodes`` are the beginnings of labels behind which the model was asked, for each row.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("MLX_DISABLE_COMPILE", "1")
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import core
from benchmarks.classify_parts.contestants import MODELS, fetch
from core_runtime.label_search import LabelSearch

BANK = tomllib.loads((Path(__file__).parent / "labelled" / "bank.toml").read_text("utf-8"))
TEMPLATE = "{} This message is about"
COUNTS = (4, 20, 77)
OPTIONS: dict[str, dict[str, Any]] = {
    "mlx_cpu": {"prefix_cache": 0},
    "llama_cpp": {"prefix_cache": 0, "n_threads": 1},
}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one kind of call."""

    backend: str
    labels: int
    labels_only: bool
    rows_per_cpu_second: float
    nodes: float


class Nodes:
    """Counts the nodes that searches read."""

    def __init__(self) -> None:
        self.read = 0
        real = LabelSearch.read

        def counted(search: LabelSearch, node: int, logprobs: Sequence[float]) -> None:
            self.read += 1
            real(search, node, logprobs)

        patch.object(LabelSearch, "read", counted).start()


def chosen(count: int) -> list[str]:
    """So many of the labels, from all over the list."""
    labels: list[str] = BANK["labels"]
    return [labels[place * len(labels) // count] for place in range(count)]


def inner_nodes(model: core.TextModel, prompt: str, labels: Sequence[str]) -> int:
    """The number of nodes that all labels have behind a prompt."""
    encode = cast("core.Tokenizing", model).encode
    head, paths = len(encode(prompt)), [tuple(encode(f"{prompt} {label}")) for label in labels]
    return len({path[:end] for path in paths for end in range(head, len(path))})


def measure(backend: str, path: str, rows: int, runs: int) -> list[Cost]:
    """Load the model, and ask all kinds of calls by turns."""
    prompts = [TEMPLATE.format(text) for text in BANK["messages"][:rows]]
    kinds = [(count, only) for count in COUNTS for only in (False, True)]
    seconds = defaultdict[tuple[int, bool], list[float]](list)
    nodes: dict[tuple[int, bool], float] = {}
    watch = Nodes()

    config = {"backend": backend, "options": OPTIONS[backend]}
    with core.load_model(path, **config) as model:  # type: ignore[arg-type]
        model.classify(prompts[:2], labels=chosen(4))  # the first call is slower
        for _ in range(runs):
            for count, only in kinds:
                labels, watch.read = chosen(count), 0
                started = time.process_time()
                found = model.classify(prompts, labels=labels, labels_only=only)
                seconds[count, only].append(time.process_time() - started)
                assert all(result.label for result in found)
                every = sum(inner_nodes(model, prompt, labels) for prompt in prompts)
                nodes[count, only] = (watch.read or every) / rows

    return [
        Cost(
            backend, count, only, rows / statistics.median(seconds[count, only]), nodes[count, only]
        )
        for count, only in kinds
    ]


def table(costs: Sequence[Cost]) -> str:
    """The costs as Markdown: a row for each backend and number of labels."""
    by_kind = {(cost.backend, cost.labels, cost.labels_only): cost for cost in costs}
    lines = [
        "| backend | labels | rows/CPU s | with labels_only | nodes of a row | with labels_only |",
        "|---|---|---|---|---|---|",
    ]
    for backend in dict.fromkeys(cost.backend for cost in costs):
        for count in COUNTS:
            both = [by_kind[backend, count, only] for only in (False, True)]
            rates = " | ".join(f"{cost.rows_per_cpu_second:.1f}" for cost in both)
            nodes = " | ".join(f"{cost.nodes:.1f}" for cost in both)
            lines.append(f"| {backend} | {count} | {rates} | {nodes} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--backends", default="mlx_cpu,llama_cpp")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()

    files = fetch(MODELS[0])
    costs: list[Cost] = []
    for backend in given.backends.split(","):
        path = files.directory if backend == "mlx_cpu" else files.gguf
        costs += measure(backend, str(path), given.rows, given.runs)
    print(table(costs))
    if given.json:
        facts = {"model": files.name, "rows": given.rows, "runs": given.runs}
        record = {**facts, "costs": [asdict(cost) for cost in costs]}
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
