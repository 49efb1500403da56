"""How much of what a GPU runs in ``classify`` is padding, and in how many shapes: simulated.

The scheduler divides the workloads of benchmarks/classify.py as it would for Gemma-3-1B, and
nothing runs. On CUDA, attention with heads of 256 keeps no plan for a shape; heads of 128 are those
of a model that is the same otherwise. ``before`` fills each micro-batch, with rows of a multiple of
16 tokens. Padding is tokens run per token of the prompts; a shape is rows, tokens and prefix of a
pass. Lines with "calls" are those of many calls of different sizes. Needs Gemma's tokenizer
(`make models`), and takes seconds.

    python benchmarks/padding.py [--tokenizer DIR] [--prompts 4096] [--mixed 1024] [--calls 40]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tokenizers import Tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from core_mlx_native.cpu.blas import ensure_blas

ensure_blas()  # before mlx: tests that import this load models on a CPU later

from benchmarks.classify_parts.checkpoint import full_config  # noqa: E402
from benchmarks.classify_parts.workloads import BULK, prompts  # noqa: E402
from core.kit.base import never_stop  # noqa: E402
from core.kit.support import block_sizes  # noqa: E402
from core.options import LoadConfig  # noqa: E402
from core.system.user_cache import cache_root  # noqa: E402
from core_mlx_native.checkpoint.config import parse_config  # noqa: E402
from core_mlx_native.chosen import Choices, FastPaths, cuts, pass_tokens  # noqa: E402
from core_mlx_native.classify.scheduler import MicroBatch, Scheduler  # noqa: E402
from core_mlx_native.network.prefill import Prefix  # noqa: E402
from core_runtime.batches import rounded_up  # noqa: E402
from core_runtime.cuts import Cuts  # noqa: E402

HEADS = (256, 128)
_BUDGET = 16384
_BLOCKS = 512, 8192  # prompts of a block of a list, first and last
_STEP_BEFORE = 16


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt whose last token is read."""

    ids: Sequence[int]

    @property
    def read_from(self) -> int:
        """The index of the last token."""
        return len(self.ids) - 1


@dataclass(slots=True)
class Padding:
    """The passes of a workload; ``run`` and ``own`` are tokens with padding and without."""

    run: int = 0
    own: int = 0
    passes: int = 0
    shapes: set[tuple[int, int, int]] = field(default_factory=set)

    @property
    def ratio(self) -> float:
        """Tokens run for each token of the prompts."""
        return self.run / self.own

    def __iadd__(self, other: Padding) -> Padding:
        self.run += other.run
        self.own += other.own
        self.passes += other.passes
        self.shapes |= other.shapes
        return self

    def add(self, batch: MicroBatch[Row], step: int, rows: int) -> None:
        """Count a micro-batch whose tokens are a multiple of ``step``, with ``rows`` of them."""
        own = [len(row.ids) - batch.prefix.size for row in batch.rows]
        length = rounded_up(max(own), step)
        self.run += rows * length
        self.own += sum(own)
        self.passes += 1
        self.shapes.add((rows, length, batch.prefix.size))


class NoThread:
    """Stands in for the owner thread: a prefix has a size, and no keys and values."""

    def run(self, job: Any, check: object) -> tuple[Prefix, int]:
        """Make the prefix of the tokens that the job was made with, all of them computed."""
        ids, _ = job.args
        return Prefix(len(ids)), len(ids)


def simulated(
    rows: Sequence[Row], head_dim: int, *, before: bool = False, row_tokens: int = 1
) -> Padding:
    """Divide the rows as ``classify`` does; ``row_tokens``: what logits weigh, 1 for none."""
    config = parse_config(full_config({"head_dim": head_dim}), "the benchmark's config")
    fast = replace(FastPaths(), cuts=not before)
    step = _STEP_BEFORE if before else Choices.of(LoadConfig(), True, config).length_step.value
    cut = cuts(config, True, fast) or Cuts(0)
    model: Any = SimpleNamespace(
        token_budget=_BUDGET,
        pass_tokens=pass_tokens(config, True),
        length_step=step,
        cuts=None if before else cut,
        fast=fast,
        lanes=1,
        prefixes=SimpleNamespace(on=False),
    )

    owner: Any = NoThread()
    task: Any = SimpleNamespace(row_tokens=row_tokens)
    scheduler: Scheduler[Row, Any, Any] = Scheduler(model, owner, task, never_stop)
    found = Padding()
    for batch in scheduler.micro_batches(_blocks(rows)):
        found.add(batch, step, cut.with_padding(len(batch.rows)))
    return found


def calls(rows: Sequence[Row], head_dim: int, count: int, *, before: bool = False) -> Padding:
    """The passes of so many calls that share out the rows, each of another size."""
    size = 2 * len(rows) // (count * (count + 1))
    found, taken = Padding(), 0
    for call in range(1, count + 1):
        call_rows = rows[taken : taken + call * size]
        taken += call * size
        found += simulated(call_rows, head_dim, before=before)
    return found


def tokenised(tokenizer: Path, workload: str, count: int) -> list[Row]:
    """The first prompts of a workload as rows."""
    library = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    return [Row(encoding.ids) for encoding in library.encode_batch(prompts(workload, count))]


def _blocks(rows: Sequence[Row]) -> Iterator[list[Row]]:
    rest = iter(rows)
    for size in block_sizes(*_BLOCKS):
        block = list(islice(rest, size))
        if not block:
            return
        yield block


def main() -> None:
    """Print a line for each workload and size of the heads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add: Callable[..., object] = parser.add_argument
    add("--tokenizer", type=Path, default=cache_root() / "models" / "gemma-3-270m")
    add("--prompts", type=int, default=4096)
    add("--calls", type=int, default=40, help="calls of different sizes that share the prompts")
    add("--mixed", type=int, default=1024, help="prompts of workload (d)")
    arguments = parser.parse_args()

    def show(name: str, heads: int, before: bool, found: Padding) -> None:
        figures = f"{found.ratio:7.3f}  {found.passes:6}  {len(found.shapes):6}"
        print(f"{name:12}  {heads:5}  {'before' if before else 'now':6}  {figures}")

    print("workload      heads  when    padding  passes  shapes")
    for workload in BULK:
        count = arguments.mixed if workload == "d" else arguments.prompts
        rows = tokenised(arguments.tokenizer, workload, count)
        for heads, before in product(HEADS, (True, False)):
            show(f"({workload})", heads, before, simulated(rows, heads, before=before))
        for heads, before in product(HEADS, (True, False)):
            found = calls(rows, heads, arguments.calls, before=before)
            show(f"({workload}) calls", heads, before, found)


if __name__ == "__main__":
    main()
