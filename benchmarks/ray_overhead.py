"""What Ray costs: beside the same model called directly, and beside one process with all cores.

::

    python benchmarks/ray_overhead.py [--rows 200000] [--prompts 1000] [--runs 3] [--model GGUF]
        [--json benchmarks/results/ray_overhead.json]

``overhead``: microseconds that a row takes by one actor of `core_ray.classify` on top of
`core_tasks.Task.classify` in this process, both with `core.testing.FakeModel` in batches of 1024,
and 32 where actors share rows. Each is the difference between twice the rows and once, so that no
start of a process is in it. ``scaling``: rows/s of two actors with one thread each, over those of
one process with two threads, of SmolLM2-135M on llama.cpp, likewise as differences. Medians of the
runs; which is first alternates. Ray is told of one CPU more than the two that compute, for what
reads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import ray
import ray.data

import core
import core_ray
import core_tasks
from benchmarks.classify_parts.workloads import LABELS, prompts
from core.testing import FakeModel

BATCH = 1024
FEW = 32  # for two actors: a batch of all rows is one actor's work
TASK = core_tasks.Task("{text}", LABELS)


def fake() -> FakeModel:
    """A model that takes no time to speak of; the first label is always the best."""

    def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
        return {label: 0.5 ** (1 + place) for place, label in enumerate(labels)}

    return FakeModel(labels=said)


def batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """The texts, as many at once as an actor is given."""
    for start in range(0, len(texts), BATCH):
        yield texts[start : start + BATCH]


def directly(model: core.TextModel, texts: Sequence[str]) -> float:
    """Seconds that the task takes in this process."""
    start = time.perf_counter()
    for batch in batches(texts):
        TASK.classify(model, batch)
    return time.perf_counter() - start


def on_ray(texts: Sequence[str], blocks: int, batch: int = BATCH, **running: Any) -> float:
    """Seconds until all rows are there, their reading before not counted."""
    given = ray.data.from_items([{"text": text} for text in texts], override_num_blocks=blocks)
    given = given.materialize()
    start = time.perf_counter()
    made = core_ray.classify(given, task=TASK, batch_size=batch, num_cpus=1, **running)
    assert made.materialize().count() == len(texts)
    return time.perf_counter() - start


def a_row(seconds: Callable[[Sequence[str]], float], texts: Sequence[str]) -> float:
    """Seconds a row: what the second half of the texts adds to the first."""
    half = len(texts) // 2
    once = seconds(texts[:half])
    return (seconds(texts) - once) / (len(texts) - half)


def in_turns(
    one: Callable[[], float], other: Callable[[], float], runs: int
) -> tuple[list[float], list[float]]:
    """The figures of both, run by run; each is first in every other run."""
    found: tuple[list[float], list[float]] = ([], [])
    for run in range(runs):
        pairs = [(found[0], one), (found[1], other)]
        for figures, measure in pairs[:: 1 if run % 2 == 0 else -1]:
            figures.append(measure())
    return found


def overhead(rows: int, runs: int) -> dict[str, Any]:
    """Microseconds a row of both ways with the fake model, and what is between them."""
    texts = [f"{number} is the number of this row" for number in range(2 * rows)]
    blocks = max(2, len(texts) // 10_000)
    direct, by_ray = in_turns(
        lambda: a_row(lambda some: directly(fake(), some), texts),
        lambda: a_row(lambda some: on_ray(some, blocks, model=fake, concurrency=1), texts),
        runs,
    )
    microseconds = [1e6 * statistics.median(each) for each in (direct, by_ray)]
    return {
        "direct_us": microseconds[0],
        "ray_us": microseconds[1],
        "overhead_us": microseconds[1] - microseconds[0],
        "runs": {"direct": direct, "ray": by_ray},
    }


def scaling(path: str, rows: int, runs: int) -> dict[str, Any]:
    """Rows/s of one process with two threads, and of two actors with one thread each."""
    texts = prompts("c", 2 * rows)
    options = {"backend": "llama_cpp", "options": {"options": {"prefix_cache": 0}}}
    with core.load_model(path, options={"n_threads": 2, "prefix_cache": 0}) as model:
        directly(model, texts[:16])
        one, two = in_turns(
            lambda: a_row(lambda some: directly(model, some), texts),
            lambda: a_row(
                lambda some: on_ray(some, 8, FEW, model=path, concurrency=2, **options), texts
            ),
            runs,
        )
    speeds = [1 / statistics.median(each) for each in (one, two)]
    return {
        "one_process_rows_s": speeds[0],
        "two_actors_rows_s": speeds[1],
        "ratio": speeds[1] / speeds[0],
        "runs": {"one": one, "two": two},
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", help="a GGUF file; without one, SmolLM2's")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = context.print_on_execution_start = False

    found = {"cores": os.cpu_count(), "ray": ray.__version__}
    found["overhead"] = told("overhead", overhead(given.rows, given.runs))
    path = given.model or smollm2()
    found["scaling"] = told("scaling", scaling(path, given.prompts, given.runs))
    ray.shutdown()
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


def told(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    """The figures, which are printed."""
    for figure, value in figures.items():
        if figure != "runs":
            print(f"{name:10} {figure:20} {value:10.3f}", flush=True)
    return figures


def smollm2() -> str:
    """The GGUF file that tools/fetch_models.py has made."""
    from benchmarks.classify_parts.contestants import MODELS, fetch

    return str(fetch(MODELS[0]).gguf)


if __name__ == "__main__":
    main()
