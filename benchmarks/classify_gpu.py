"""Measure ``classify`` on a CUDA GPU with a model of Gemma-3-1B's shape, in bfloat16.

The backend mlx_cuda and transformers on torch take turns on the same GPU, each in a process of its
own; medians are compared. Without ``--model`` the weights are random, made on the spot: the same
work, meaningless labels. Needs the CUDA build of MLX, and a Gemma 3 tokenizer::

    pip install -r dist/mlx-cuda.txt torch transformers
    python benchmarks/classify_gpu.py [--model DIR] [--json FILE] [--chart FILE]

Peak memory is that of the GPU. Ends with 1 when a mark for an H200 is missed, with 2 where there
is no CUDA.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console

import core
from benchmarks import machine
from benchmarks.classify_parts import report
from benchmarks.classify_parts.comparison import TITLES, Comparison, say
from benchmarks.classify_parts.contestants import RATE, variant
from benchmarks.classify_parts.runner import Spec
from benchmarks.classify_parts.workloads import WORKLOADS
from benchmarks.line_process import python_path

BACKEND = "mlx_cuda"
OURS, TORCH = f"core {BACKEND}", "transformers"
MARKS = {"a": 10_000.0, "c": 5_000.0}  # sentences/s on a GPU of the H200 class
MATMUL = {"device": "gpu", "dtype": "bfloat16", "size": 8192}


def make_weights(out: Path, tokenizer: Path) -> None:
    """Random ones of Gemma-3-1B's shape; about 2 GB."""
    module = "benchmarks.classify_parts.checkpoint"
    command = [sys.executable, "-m", module, str(out), str(tokenizer)]
    subprocess.run(command, check=True, env=os.environ | python_path())


def specs(model: str, arguments: argparse.Namespace) -> list[Spec]:
    """The rate, ours, ours with other options, and torch."""
    lines = {OURS: {}, **{f"{OURS}, {name}": load for name, load in arguments.variants}}
    ours = [
        Spec(
            name, "core", model, sys.executable, {"backend": BACKEND, "load": load, "on_gpu": True}
        )
        for name, load in lines.items()
    ]
    on_torch = {"device": "cuda", "dtype": "bfloat16", "batch": arguments.batch}
    return [
        Spec(RATE, "matmul", model, sys.executable, MATMUL),
        *ours,
        Spec(TORCH, "transformers", model, arguments.transformers_python, on_torch),
    ]


def compare(model: str, name: str, arguments: argparse.Namespace) -> Comparison:
    """Run all workloads."""
    comparison = Comparison(arguments.prompts, arguments.runs, {})
    for workload in arguments.workloads:
        comparison.measure(name, model, workload, specs(model, arguments))
    return comparison


def missed(comparison: Comparison, workloads: Sequence[str]) -> list[str]:
    """Marks that ours does not reach, in words; one that was not measured is missed."""
    ours = {row.workload: row for row in comparison.results if row.contestant == OURS}
    short = []
    for workload in workloads:
        wanted = MARKS.get(workload, 0.0)
        if workload not in ours:
            short.append(f"({workload}): not measured")
        elif (rate := ours[workload].prompts_per_second) < wanted:
            short.append(f"({workload}): {rate:,.0f} sentences/s, {wanted:,.0f} wanted on an H200")
    return short


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    gemma = cache / "core" / "models" / "gemma-3-270m"
    parser = argparse.ArgumentParser(description="Time classify on a CUDA GPU, beside torch.")
    add = parser.add_argument
    add("--model", type=Path, help="a directory with real weights, instead of random ones")
    add("--tokenizer", type=Path, default=gemma, help="a Gemma 3 directory; default: %(default)s")
    add("--workloads", nargs="+", choices=WORKLOADS, default=["a", "c"])
    add("--variants", nargs="+", type=variant, default=[], metavar="NAME=JSON",
        help=f"further lines: {OURS} loaded with these options")  # fmt: skip
    add("--prompts", type=int, default=4096)
    add("--runs", type=int, default=5, help="runs of each; default 5")
    add("--batch", type=int, default=256, help="rows of a batch of transformers; default 256")
    add("--transformers-python", default=sys.executable, metavar="PATH")
    add("--json", type=Path, metavar="FILE")
    add("--chart", type=Path, metavar="FILE", help="an SVG file")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, show and write."""
    arguments = parse_arguments(given)
    if reason := core.backend_status(BACKEND).reason:
        print(f"classify_gpu: {BACKEND} cannot run here: {reason}", file=sys.stderr)
        return 2
    about = machine.describe(os.cpu_count() or 1)
    about["gpu"] = ", ".join(device.name for device in core.backend_status(BACKEND).devices)
    with tempfile.TemporaryDirectory() as place:
        if arguments.model:
            about["weights"], name = "real", arguments.model.name
        else:
            about["weights"], name = "random", "gemma-3-1b shape, random weights"
            say("making random weights of Gemma-3-1B's shape")
            make_weights(Path(place), arguments.tokenizer)
        comparison = compare(str(arguments.model or place), name, arguments)
    return show(comparison, arguments, about)


def show(comparison: Comparison, arguments: argparse.Namespace, about: dict[str, Any]) -> int:
    """Print and write; the exit status."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    report.show(console, comparison.results, TITLES, [TORCH])
    short = missed(comparison, arguments.workloads)
    report.show_lines(console, comparison.skipped, short, machine.caption(about))
    comparison.write(arguments.json, arguments.chart, about, MARKS)
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
