"""Where ``classify`` spends its time on a CPU, part by part of the forward pass.

Each part is waited for before the next begins, so that what MLX puts off is counted where it
belongs; on a CPU that costs little, and the line below each table says how much. Where lanes run
side by side, a part's time is their mean. Products of the layers' matrices are shown with their
share of the machine's measured matrix-multiply rate::

    python benchmarks/classify_profile.py [--workloads a c] [--prompts 256] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.classify_parts import machine
from benchmarks.classify_parts.clock import HEAD, PRODUCTS, Call, Clocks, timed
from benchmarks.classify_parts.contestants import MODELS, fetch
from benchmarks.classify_parts.runner import WARM_UP, Spec, spread
from benchmarks.classify_parts.workloads import BULK, LABELS, WORKLOADS, prompts


@contextmanager
def watched(clocks: Clocks) -> Iterator[None]:
    """Every part of the product is timed while this is open."""
    from core_mlx_native.classify import labels, microbatch
    from core_mlx_native.cpu import few_tokens, lanes, numpy_ops
    from core_mlx_native.cpu import ops as cpu_ops
    from core_mlx_native.cpu import product as products
    from core_mlx_native.network import decoder, layers, rotary
    from core_mlx_native.text.tokenizer import Tokenizer

    def product(matrix: Any, x: Any) -> int:
        return int(2 * x.size * matrix.weight.shape[0])

    def short_product(_: Any, x: Any, out: Any) -> int:
        return int(2 * x.size * out.shape[1])

    parts: list[tuple[Any, str, str, Call | None]] = [
        (Tokenizer, "encode_batch", "tokeniser", None),
        (Tokenizer, "encode_continued", "tokeniser", None),
        (layers.Dense, "product", PRODUCTS, product),
        (numpy_ops, "_gated", "activation", None),
        (numpy_ops, "softmax", "softmax", None),
        (cpu_ops, "numpy_attention", "attention's own products", None),
        (rotary.RotaryEmbedding, "rotate", "rope", None),
        (layers.RMSNorm, "__call__", "norms", None),
        (products.Product, "into", PRODUCTS, short_product),  # from here on, of short passes
        (few_tokens.FewTokens, "_mlp", "activation", None),
        (few_tokens.FewTokens, "_shares", "softmax", None),
        (few_tokens.FewTokens, "_attention", "attention's own products", None),
        (few_tokens, "_turned", "rope", None),
        (few_tokens.Norm, "__call__", "norms", None),
        (decoder.Decoder, "logits", HEAD, None),
        (microbatch, "ask_labels", "labels", None),
        (labels, "score_edges", "labels", None),
    ]
    with ExitStack() as stack:
        for owner, name, part, operations in parts:
            made = timed(clocks, part, getattr(owner, name), operations)
            stack.enter_context(patch.object(owner, name, made))
        stack.enter_context(patch.object(lanes, "run", partial(clocks.run_lanes, lanes.run)))
        yield


@dataclass(frozen=True, slots=True)
class Profile:
    """One workload on one model: seconds of a run by part, and of whole runs, watched and not."""

    model: str
    workload: str
    prompts: int
    seconds: dict[str, float]
    share_of_rate: float  # of the products of the layers' matrices
    watched_seconds: float
    unwatched_seconds: float


def profile(directory: str, workload: str, count: int, runs: int, rate: float) -> Profile:
    """Load, warm up, and run the workload both ways."""
    import core

    texts = prompts(workload, count)
    cold = {"prefix_cache": 0}  # every run is asked the same prompts
    with core.load_model(directory, backend="mlx_cpu", options=cold) as model:

        def seconds(some: Sequence[str]) -> float:
            started = time.perf_counter()
            model.classify(some, labels=LABELS)
            return time.perf_counter() - started

        seconds(spread(texts, WARM_UP))
        unwatched = statistics.median(seconds(texts) for _ in range(runs))
        clocks = Clocks()
        clock = clocks.whole
        with watched(clocks):
            clock.restart()
            slow = statistics.median(seconds(texts) for _ in range(runs))
            clock.stop()
    slowest = sorted(clock.seconds.items(), key=lambda pair: -pair[1])
    parts = {part: spent / runs for part, spent in slowest}
    share = clock.operations[PRODUCTS] / clock.seconds[PRODUCTS] / rate
    return Profile(Path(directory).name, workload, count, parts, share, slow, unwatched)


def show(console: Console, found: Profile) -> None:
    """Parts, the slowest first."""
    title = f"{found.model}, ({found.workload}) {WORKLOADS[found.workload].title}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    for column in ("", "seconds", "share of time", "share of rate"):
        table.add_column(column, justify="right" if column else "left")
    total = sum(found.seconds.values())
    for part, seconds in found.seconds.items():
        rate = f"{found.share_of_rate:.0%}" if part == PRODUCTS else ""
        table.add_row(part, f"{seconds:.3f}", f"{seconds / total:.1%}", rate)
    console.print(table)
    console.print(
        f"{found.prompts / found.unwatched_seconds:.1f} prompts/s unwatched; watching made a run "
        f"{found.watched_seconds / found.unwatched_seconds:.2f} times as long\n"
    )


def measured_rate(directory: str) -> float:
    """The best of a few large products: operations per second."""
    from benchmarks.classify_parts.run_matmul import Matmul

    matmul = Matmul(Spec("matmul", "matmul", directory, sys.executable))
    return max(matmul.run([]).flops_per_second or 0.0 for _ in range(3))


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time the parts of classify on a CPU.")
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--model", type=Path, help="a model directory of your own, instead")
    add("--workloads", nargs="+", choices=WORKLOADS, default=list(BULK))
    add("--prompts", type=int, default=256)
    add("--runs", type=int, default=3, help="runs of each kind; default 3")
    add("--json", type=Path, metavar="FILE")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Measure, show and write."""
    asked = parse_arguments(given)
    directories = [str(asked.model)] if asked.model else [fetch(n).directory for n in asked.models]
    console = Console(width=None if sys.stdout.isatty() else 100)
    about = machine.describe(os.cpu_count() or 1)
    about["flops_per_second"] = rate = measured_rate(directories[0])
    found = [
        profile(directory, workload, asked.prompts, asked.runs, rate)
        for directory in directories
        for workload in asked.workloads
    ]
    for one in found:
        show(console, one)
    console.print(f"{rate / 1e9:.0f} GFLOP/s measured. {machine.caption(about)}", highlight=False)
    if asked.json:
        written = {"machine": about, "runs": asked.runs, "profiles": [asdict(one) for one in found]}
        asked.json.write_text(json.dumps(written, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
