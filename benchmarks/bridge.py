"""What the bridge to mlx-lm costs, beside mlx-lm in process. Prints JSON; 1 when a mark is missed.

SmolLM2-135M in float32, greedy, both sides behind the same BLAS; they take turns. Needs
infercore-mlx-native for that BLAS on Linux::

    python benchmarks/bridge.py [--model DIR] [--runs 5] [--only decode start protocol cancel]

``decode``: tokens/s of one stream against ``mlx_lm.stream_generate``. ``start``: seconds from
``core.load_model`` to a loaded model, against ``import mlx_lm`` and ``load`` in a fresh process.
``protocol``: tokens/s when the model costs nothing. ``cancel``: tokens that the worker makes after
its caller has stopped.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import core
from core_mlx_lm_bridge import loading
from core_mlx_lm_bridge.child.service import serve
from core_mlx_lm_bridge.protocol import Chat, Done, Generate, Load, Ok, TokenAnswer
from core_mlx_lm_bridge.session import WorkerSession

MARKS = {"decode": 0.97, "start": 0.3, "protocol": 20_000, "cancel": 1}
TOKENS = 64
PIECES = 20_000
PROMPT = "Once upon a time there was a lighthouse keeper who could not"
FAKE = "CORE_BENCHMARK_FAKE_MODEL"

IMPORT_AND_LOAD = """
import sys, time
started = time.perf_counter()
import mlx_lm
mlx_lm.load(sys.argv[1])
print(time.perf_counter() - started)
"""

Measure = Callable[[], float]


class FakeModel:
    """Says "token " as often as it is asked to, at no cost."""

    def load(self, request: Load) -> Ok:
        """Nothing to load."""
        return self.info()

    def info(self) -> Ok:
        """Of no model."""
        return Ok(model_type="fake", vocab_size=1, layers=1, hidden_size=1, context_length=2**20)

    def generate(
        self, request: Generate | Chat, cancelled: Callable[[], bool]
    ) -> Iterator[TokenAnswer | Done]:
        """As the real engine, without a model."""
        for number in range(request.max_tokens):
            yield TokenAnswer(id=request.id, token="token ", token_id=number)
            if cancelled():
                break
        yield Done(id=request.id, finish_reason="length")


def environment() -> dict[str, str]:
    """For worker and comparison alike: no compiler, one thread, and a real BLAS on Linux."""
    chosen = {"MLX_DISABLE_COMPILE": "1", "OPENBLAS_NUM_THREADS": "1"}
    if sys.platform == "linux" and "LD_PRELOAD" not in os.environ:
        libraries = importlib.import_module("core_mlx_native.cpu.blas_libraries")
        library = next(iter(libraries.candidates()), None)
        if library is not None:
            chosen["LD_PRELOAD"] = f"{library.path}:{libraries.shim_path()}"
    return chosen


def in_turns(calls: dict[str, Measure], runs: int) -> dict[str, list[float]]:
    """Each call's results; the first round touches everything once and does not count."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(runs + 1):
        for name, call in calls.items():
            value = call()
            if number:
                found[name].append(value)
    return found


def decode(path: Path, runs: int) -> dict[str, float]:
    """Tokens per second of whole streams, both timed by this process."""
    generate: Any = importlib.import_module("mlx_lm")
    model, tokenizer = generate.load(str(path))

    def theirs() -> float:
        return rate(generate.stream_generate(model, tokenizer, PROMPT, max_tokens=TOKENS))

    with core.load_model(path, backend="mlx_lm") as bridged:
        calls = {
            "bridge": lambda: rate(bridged.generate(PROMPT, max_tokens=TOKENS)),
            "in_process": theirs,
        }
        found = in_turns(calls, runs)
    # Of the best runs: whatever disturbs one only makes it slower.
    ratio = max(found["bridge"]) / max(found["in_process"])
    return {**medians(found), "ratio": round(ratio, 3)}


def rate(stream: Iterator[Any]) -> float:
    """Tokens per second of a whole stream."""
    started = time.perf_counter()
    count = sum(1 for _ in stream)
    return count / (time.perf_counter() - started)


def start(path: Path, runs: int) -> dict[str, float]:
    """Seconds; ``above`` is what the process and the protocol add."""

    def bridge() -> float:
        started = time.perf_counter()
        model = core.load_model(path, backend="mlx_lm")
        seconds = time.perf_counter() - started
        model.close()
        return seconds

    def alone() -> float:
        command = [sys.executable, "-c", IMPORT_AND_LOAD, str(path)]
        return float(subprocess.run(command, check=True, capture_output=True).stdout)

    found = in_turns({"bridge": bridge, "import_and_load": alone}, runs)
    pairs = zip(found["bridge"], found["import_and_load"], strict=True)
    above = statistics.median(ours - theirs for ours, theirs in pairs)
    return {**medians(found), "above": round(above, 3)}


def protocol(path: Path, runs: int) -> dict[str, float]:
    """Tokens per second of a model that costs nothing."""
    with (
        mock.patch.object(loading, "WORKER", Path(__file__)),
        core.load_model(path, backend="mlx_lm", options={"env": {FAKE: "1"}}) as model,
    ):
        call = {"protocol": lambda: rate(model.generate(PROMPT, max_tokens=PIECES))}
        return medians(in_turns(call, runs))


def cancel(path: Path, runs: int) -> dict[str, float]:
    """The most tokens that the worker made beyond those that were read."""
    ends: list[Done | None] = []
    stop = WorkerSession.stop

    def recorded(self: WorkerSession, id: int, seconds: float) -> Done | None:
        ends.append(stop(self, id, seconds))
        return ends[-1]

    beyond = []
    with (
        mock.patch.object(WorkerSession, "stop", recorded),
        core.load_model(path, backend="mlx_lm") as model,
    ):
        for count in range(1, runs + 1):
            stream = model.generate(PROMPT, max_tokens=TOKENS)
            for _ in range(count):
                next(stream)
            stream.close()
            done = ends.pop()
            beyond.append(done.generation_tokens - count if done else TOKENS)
    return {"tokens": max(beyond)}


def medians(found: dict[str, list[float]]) -> dict[str, float]:
    """Of each call's results."""
    return {name: round(statistics.median(values), 3) for name, values in found.items()}


def kept(report: dict[str, dict[str, float]]) -> bool:
    """Whether all marks that were measured are kept."""
    decoded, started = report.get("decode"), report.get("start")
    said, cancelled = report.get("protocol"), report.get("cancel")
    return (
        (decoded is None or decoded["ratio"] >= MARKS["decode"])
        and (started is None or started["above"] <= MARKS["start"])
        and (said is None or said["protocol"] >= MARKS["protocol"])
        and (cancelled is None or cancelled["tokens"] <= MARKS["cancel"])
    )


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    model = cache / "core" / "models" / "smollm2-135m-instruct"
    parser = argparse.ArgumentParser(description="Time the bridge, beside mlx-lm in process.")
    parser.add_argument("--model", type=Path, default=model)
    parser.add_argument("--runs", type=int, default=5, help="runs of each; default 5")
    parser.add_argument("--only", nargs="+", choices=MARKS, default=list(MARKS))
    return parser.parse_args()


def main() -> int:
    """Measure and print."""
    wanted = environment()
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        # Once more with the same environment for this process and all that it starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})
    arguments = parse_arguments()
    measures = {"decode": decode, "start": start, "protocol": protocol, "cancel": cancel}
    report = {name: measures[name](arguments.model, arguments.runs) for name in arguments.only}
    print(json.dumps({**report, "marks": MARKS}, indent=2))
    return 0 if kept(report) else 1


if __name__ == "__main__":
    if os.environ.get(FAKE):
        serve(FakeModel(), *map(int, sys.argv[-2:]))
    else:
        sys.exit(main())
