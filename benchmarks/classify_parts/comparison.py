"""The comparison of all contestants on one model and workload, and its reports."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.classify_parts import measuring, report
from benchmarks.classify_parts.chart import chart
from benchmarks.classify_parts.contestants import RATE
from benchmarks.classify_parts.measuring import Result
from benchmarks.classify_parts.runner import Spec
from benchmarks.classify_parts.turns import Turns
from benchmarks.classify_parts.workloads import WORKLOADS, prompts

TITLES = {name: workload.title for name, workload in WORKLOADS.items()}


@dataclass(slots=True)
class Comparison:
    """The results so far, and the reason for each skipped contestant."""

    count: int
    runs: int
    environment: Mapping[str, str]
    results: list[Result] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def measure(self, model: str, directory: str, workload: str, specs: Sequence[Spec]) -> None:
        """Run the contestants, `RATE` among them; the first other one is the reference."""
        say(f"{model}, ({workload}) {TITLES[workload]}")
        turns, how = Turns(specs, self.environment, say), WORKLOADS[workload]
        with neighbours(how.neighbours):
            runs_of = turns.take(prompts(workload, self.count), self.runs, how.call)
        self.skipped |= {f"{model}: {name}": why for name, why in turns.skipped.items()}
        flops_per_second = measuring.rate(runs_of.pop(RATE, []))
        parameters = measuring.read_layer_parameters(Path(directory))
        reference = next((runs[-1] for runs in runs_of.values()), {})
        for name, runs in runs_of.items():
            figures = measuring.summary(runs, reference, parameters, flops_per_second)
            self.results.append(Result(model, workload, name, turns.about[name], **figures))

    def write(
        self,
        json_file: Path | None,
        chart_file: Path | None,
        about: dict[str, Any],
        marks: Mapping[str, Any],
    ) -> None:
        """Write the results as JSON, and as a chart, into the files that are given."""
        if json_file:
            settings = {"machine": about, "runs": self.runs, "marks": marks}
            text = report.to_json(self.results, {**settings, "skipped": self.skipped})
            json_file.write_text(text, encoding="utf-8")
        if chart_file:
            drawing = chart(self.results, TITLES, machine.caption(about))
            chart_file.write_text(drawing, encoding="utf-8")


@contextmanager
def neighbours(count: int) -> Iterator[None]:
    """Run ``count`` other processes that compute without a pause."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    if processes:
        time.sleep(1.0)  # they start, and libraries' threads stop spinning
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def say(words: str) -> None:
    """Print progress, apart from the results."""
    print(words, file=sys.stderr, flush=True)


def threads_environment(threads: int) -> dict[str, str]:
    """Return variables that set the same number of threads for every library."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
    return dict.fromkeys(names, str(threads))
