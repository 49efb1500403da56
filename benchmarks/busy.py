"""How much a busy machine slows small calls down, beside one BLAS thread. Prints JSON.

SmolLM2-135M in float32 on the CPU: one prompt a call, four prompts a call, and decoding; on a quiet
machine, and beside one and two other processes that compute, which this script starts itself. Three
processes hold the model and take turns: as it is (`core`), with
``OPENBLAS_NUM_THREADS`` at the number of cores, which is kept whatever the load (`all`), and at 1
(`one`)::

    python benchmarks/busy.py [--model DIR] [--runs 7] [--neighbours 0 1 2] [--json FILE]

Beside others `core` takes at most 1.3 times as long as `one`, and on a quiet machine at most 1.05
times as long as `all`; the exit status is 1 where it is not so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import core
from core_runtime.machine import usable_cores

BUSY_MARK = 1.3
QUIET_MARK = 1.05
TOKENS = 16
PROMPTS = [
    "The central bank raised interest rates by a quarter of a percentage point. This is about",
    "The home team won the final after extra time, and their captain wept. This is about",
    "Astronomers found a planet that orbits two stars at a great distance. This is about",
    "The company presented a new processor that uses half the power. This is about",
]
LABELS = ["finance", "sports", "science", "technology"]
OPERATIONS = ("one_prompt", "four_prompts", "decode")
SETTINGS: dict[str, dict[str, str]] = {
    "core": {},
    "all": {"OPENBLAS_NUM_THREADS": str(usable_cores())},
    "one": {"OPENBLAS_NUM_THREADS": "1"},
}

Seconds = dict[str, list[float]]


def serve(path: Path) -> None:
    """Hold the model, and time each operation that a line of stdin names."""
    with core.load_model(path, backend="mlx_cpu") as model:
        calls: dict[str, Callable[[], object]] = {
            "one_prompt": lambda: [model.classify([row], labels=LABELS) for row in PROMPTS * 2],
            "four_prompts": lambda: [model.classify(PROMPTS, labels=LABELS) for _ in range(4)],
            "decode": lambda: list(model.generate(PROMPTS[0], max_tokens=TOKENS)),
        }
        print("ready", flush=True)
        for line in sys.stdin:
            started = time.perf_counter()
            calls[line.strip()]()
            print(time.perf_counter() - started, flush=True)


class Served:
    """A process of this script that holds the model under one setting."""

    def __init__(self, name: str, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--model", path, "--serve"],
            env={**os.environ, **SETTINGS[name]},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()

    def seconds(self, operation: str) -> float:
        """How long one call takes."""
        assert self.process.stdin is not None
        self.process.stdin.write(operation + "\n")
        self.process.stdin.flush()
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("A process of the benchmark ended; its message is above.")
        return line

    def close(self) -> None:
        """End it."""
        self.process.communicate()


@contextlib.contextmanager
def neighbours(count: int) -> Iterator[None]:
    """So many other processes that compute without a pause."""
    command = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command) for _ in range(count)]
    time.sleep(1.0)  # they begin, and what ran before has ended
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def measure(served: dict[str, Served], count: int, runs: int) -> dict[str, Any]:
    """Medians of each operation under each setting, beside ``count`` neighbours."""
    found: dict[str, Seconds] = {name: {key: [] for key in served} for name in OPERATIONS}
    with neighbours(count):
        for number in range(runs + 1):
            for operation in OPERATIONS:
                for key, process in served.items():
                    seconds = process.seconds(operation)
                    if number:  # the first round touches everything once
                        found[operation][key].append(seconds)
    return {operation: _compared(values) for operation, values in found.items()}


def _compared(values: Seconds) -> dict[str, float]:
    medians = {key: statistics.median(times) for key, times in values.items()}
    worst = {f"{key}_longest": max(times) for key, times in values.items()}
    pairs = {
        f"core_to_{key}": statistics.median(
            ours / theirs for ours, theirs in zip(values["core"], values[key], strict=True)
        )
        for key in medians
        if key != "core"
    }
    return {name: round(value, 3) for name, value in (medians | worst | pairs).items()}


def missed(report: dict[str, dict[str, Any]]) -> list[str]:
    """What is slower than the marks allow."""
    found = []
    for count, operations in report.items():
        key, mark = ("core_to_one", BUSY_MARK) if int(count) else ("core_to_all", QUIET_MARK)
        found += [f"{name}, {count}" for name, row in operations.items() if row[key] > mark]
    return found


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    model = cache / "core" / "models" / "smollm2-135m-instruct"
    parser = argparse.ArgumentParser(description="Time small calls on a busy machine.")
    parser.add_argument("--model", type=Path, default=model)
    parser.add_argument("--runs", type=int, default=7, help="runs of each; default 7")
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """Measure and print; 1 when a mark is missed."""
    arguments = parse_arguments()
    if arguments.serve:
        serve(arguments.model)
        return 0
    served = {name: Served(name, arguments.model) for name in SETTINGS}
    counts: Sequence[int] = arguments.neighbours
    found = {str(count): measure(served, count, arguments.runs) for count in counts}
    for process in served.values():
        process.close()
    report = {
        "model": arguments.model.name,
        "runs": arguments.runs,
        "cpus": os.cpu_count(),
        "marks": {"busy": BUSY_MARK, "quiet": QUIET_MARK},
        "seconds": found,
        "missed": missed(found),
    }
    text = json.dumps(report, indent=2)
    print(text)
    if arguments.json:
        arguments.json.write_text(text + "\n")
    return int(bool(report["missed"]))


if __name__ == "__main__":
    raise SystemExit(main())
