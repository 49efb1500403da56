"""llama_cpp beside a loop over ``llama_cpp.Llama``: one process, one GGUF, the same threads.

    python benchmarks/gguf.py MODEL.gguf [--prompts 256] [--runs 5] [--only NAME ...]

``classify``: prompts that share a 25-token instruction against a loop over
``Llama.create_completion(max_tokens=1, logprobs=...)``, which reuses the common prefix by itself.
``alternating``: the same, when two instructions take turns, which defeats its reuse. ``batch``: 16
prompts by 32 tokens. ``memory``: growth of the process from classify with many prompts, over that
of one. They take turns, and medians are compared; prints JSON and misses.

Run where llama.cpp has a BLAS, ``--plain-python`` names the interpreter of an environment like this
one whose llama.cpp has none: ``plain_loop`` is then classify here against the loop there.
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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import core

LABELS = ["finance", "sports", "science", "technology"]
FIRST = "Name the field of the news below in one word: finance, sports, science or technology.\n"
SECOND = "Is the following about finance, about sports, about science, or about technology?\n"
MARKS = {"plain": {"classify": 1.25}, "OpenBLAS": {"classify": 1.7}}
COMMON_MARKS = {"alternating": 3.0, "batch": 1.5, "plain_loop": 2.0}
LARGEST_MEMORY = 1.3
ROOT = Path(__file__).parents[1]
HEADLINES = ROOT / "examples" / "headlines.jsonl"

Call = Callable[[], object]


def news(count: int) -> list[str]:
    """Sentences of about 20 tokens."""
    texts = [json.loads(line)["text"] for line in HEADLINES.read_text().splitlines()]
    return [texts[index % len(texts)] for index in range(count)]


def compare(ours: Call, theirs: Call, runs: int) -> dict[str, float]:
    """Medians in seconds, taken in turns, and how many times faster ours is."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(runs):
        for name, call in (("ours", ours), ("theirs", theirs)):
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    return {**medians, "ratio": medians["theirs"] / medians["ours"]}


class Loop:
    """The peer, as its users write it."""

    def __init__(self, path: Path, threads: int) -> None:
        library: Any = importlib.import_module("llama_cpp")
        options = {"n_threads": threads, "n_threads_batch": threads, "verbose": False}
        self.reading = library.Llama(str(path), n_ctx=512, logits_all=True, **options)
        self.writing = library.Llama(str(path), n_ctx=512, **options)

    def classify(self, prompts: Sequence[str]) -> None:
        """One token each, with its log-probabilities."""
        for prompt in prompts:
            self.reading.create_completion(prompt, max_tokens=1, logprobs=5, temperature=0.0)

    def write(self, prompts: Sequence[str], tokens: int) -> None:
        """So many tokens each."""
        for prompt in prompts:
            self.writing.create_completion(prompt, max_tokens=tokens, temperature=0.0)


class OtherLoop:
    """`Loop.classify` of the shared prompts in another interpreter, once for each line it gets."""

    CODE = (
        "import sys, pathlib; path, count, threads = sys.argv[1], *map(int, sys.argv[2:])\n"
        "from benchmarks.gguf import Loop, shared\n"
        "loop = Loop(pathlib.Path(path), threads); loop.classify(shared(8)); print(flush=True)\n"
        "for line in sys.stdin: loop.classify(shared(count)); print(flush=True)\n"
    )

    def __init__(self, python: str, path: Path, count: int, threads: int) -> None:
        command = [python, "-c", self.CODE, str(path), str(count), str(threads)]
        pipe = subprocess.PIPE
        self._child = subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True)
        self._wait()  # until it is warm

    def classify(self) -> None:
        """One pass over the prompts there."""
        assert self._child.stdin is not None
        print(file=self._child.stdin, flush=True)
        self._wait()

    def _wait(self) -> None:
        assert self._child.stdout is not None
        if not self._child.stdout.readline():
            raise SystemExit(f"the loop in {self._child.args!r:.60} ended")


def shared(count: int) -> list[str]:
    """Prompts behind one instruction."""
    return [f"{FIRST}{text} Field:" for text in news(count)]


def measure(
    path: Path, count: int, runs: int, threads: int, plain_python: str = ""
) -> dict[str, Callable[[], dict[str, float]]]:
    """The comparisons, by name."""
    loop = Loop(path, threads)
    model = core.load_model(path, backend="llama_cpp", parallel_slots=16)
    same = shared(count)
    mixed = [f"{(FIRST, SECOND)[i % 2]}{text} Field:" for i, text in enumerate(news(count))]

    def classify() -> object:
        return model.classify(same, labels=LABELS)

    def batch() -> object:
        results = model.batch_generate(same[:16], max_tokens=32)
        assert all(result.error is None for result in results)
        return results

    model.classify(same[:8], labels=LABELS)
    loop.classify(same[:8])
    calls = {
        "classify": lambda: compare(classify, lambda: loop.classify(same), runs),
        "alternating": lambda: compare(
            lambda: model.classify(mixed, labels=LABELS), lambda: loop.classify(mixed), runs
        ),
        "batch": lambda: compare(batch, lambda: loop.write(same[:16], 32), runs),
    }
    if plain_python:
        other = OtherLoop(plain_python, path, count, threads)
        calls["plain_loop"] = lambda: compare(classify, other.classify, runs)
    return calls


def growth(path: Path, count: int) -> int:
    """Resident bytes of a child that classified so many prompts, at their peak."""
    code = (
        "import sys, core; path, count = sys.argv[1], int(sys.argv[2])\n"
        "from benchmarks.classify_parts.worker import peak_bytes\n"
        "from benchmarks.gguf import LABELS, shared\n"
        "with core.load_model(path, backend='llama_cpp', parallel_slots=16) as model:\n"
        "    model.classify(shared(count), labels=LABELS)\n"
        # Not getrusage, whose ru_maxrss begins with what the parent held.
        "print(peak_bytes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path), str(count)],
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    return int(done.stdout)


def main() -> None:
    """Measure, print, and exit with 1 when a mark is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--prompts", type=int, default=256)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    names = ["classify", "alternating", "batch", "plain_loop", "memory"]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--plain-python", default="", metavar="PATH")
    options = parser.parse_args()
    calls = measure(
        options.model, options.prompts, options.runs, options.threads, options.plain_python
    )
    found: dict[str, Any] = {name: call() for name, call in calls.items() if name in options.only}
    if "memory" in options.only:
        one, many = growth(options.model, 1), growth(options.model, options.prompts)
        found["memory"] = {"one": one, "many": many, "ratio": many / one}
    backend: Any = core.get_backend("llama_cpp")
    build = "OpenBLAS" if "OpenBLAS" in backend.devices()[0].detail else "plain"
    marks = {**MARKS[build], **COMMON_MARKS}
    misses = [name for name, mark in marks.items() if name in found and found[name]["ratio"] < mark]
    if "memory" in found and found["memory"]["ratio"] > LARGEST_MEMORY:
        misses.append("memory")
    print(json.dumps({"build": build, "marks": marks, **found, "missed": misses}, indent=1))
    sys.exit(bool(misses))


if __name__ == "__main__":
    main()
