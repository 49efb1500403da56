"""Measure Python's cost around the device: ``classify`` with a device that takes no time.

The tokenizer, the scheduler and what makes results are real; each micro-batch's values are there
at once, all the same. So what is left is what a GPU has to be waited for by, at best. CPU time of
each thread, in microseconds a prompt, the least of some runs::

    python benchmarks/host_cost.py [--model DIR] [--workload a] [--prompts 4096] [--json FILE]
    python benchmarks/host_cost.py --tokenizers    # of every family, as published and as converted

The caller's, the owner's and the tokenising thread hold the GIL while they run, but for what the
library of the tokenizer does, which has threads of its own as well.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ["MLX_DISABLE_COMPILE"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import core
from benchmarks.classify_parts.workloads import LABELS, WORKLOADS, prompts
from benchmarks.host_tokenizers import FAMILIES, pairs
from core_mlx_native import chosen
from core_mlx_native.backend import Cpu
from core_mlx_native.classify import prefixes, scheduler
from core_mlx_native.classify.labels import DeviceLabels
from core_mlx_native.classify.microbatch import ClassifyTask, DeviceResult
from core_mlx_native.network.prefill import Prefix
from core_runtime import classifying
from core_runtime.rows import PromptRow, labels_alone
from core_runtime.text import label_tokens
from core_runtime.tokenizer.model_tokenizer import Tokenizer

GPU: dict[str, Any] = {"overlap": True, "lanes": 1, "token_budget": 16384, "length_step": 16}
CASES: dict[str, dict[str, Any]] = {
    "no labels": {},
    "four labels": {"labels": LABELS},
    "four labels, labels_only": {"labels": LABELS, "labels_only": True},
}

Times = dict[str, float]


def computed(task: ClassifyTask, rows: Sequence[PromptRow], *_: object) -> DeviceResult:
    """In the place of a pass: the same values for every row."""
    import mlx.core as mx

    def full(*shape: int, dtype: mx.Dtype = mx.float32) -> mx.array:
        return mx.zeros(shape, dtype)

    count, labels = len(rows), []
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.question is not None:
            groups[id(row.question.trie)].append(index)
    for some in groups.values():
        question = rows[some[0]].question
        assert question is not None
        trie = question.trie
        values = [full(len(some), sum(map(len, trie.children)))]
        labels.append(DeviceLabels(some, trie, list(trie.prefixes), values))

    alone = labels_alone(task.config)
    tokens = None if alone else full(count, dtype=mx.uint32)
    return DeviceResult(full(count, dtype=mx.bool_), tokens, labels=labels).queue()


class Watch:
    """CPU seconds by part: of each thread, and within it of some functions."""

    def __init__(self) -> None:
        self.parts: defaultdict[str, float] = defaultdict(float)

    def around(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, watched; a generator is watched until its end."""

        @wraps(function)
        def watched(*given: Any, **named: Any) -> Any:
            started = time.thread_time()
            value = function(*given, **named)
            if isinstance(value, Iterator):
                value = iter(list(value))
            self.parts[part] += time.thread_time() - started
            return value

        return watched

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the product's parts, and put constants where the device computes."""
        parts: list[tuple[Any, str, str]] = [
            (prefixes.Prefixes, "groups", "grouping"),
            (scheduler.Scheduler, "_cut", "cutting into micro-batches"),
            (ClassifyTask, "results", "results"),
            (classifying.ClassifyCall, "_tokenise", "tokenising thread"),
            (Tokenizer, "_batch", "library's calls"),
            (label_tokens.LabelTokens, "after", "label questions"),
        ]
        constant: list[tuple[Any, str, Any]] = [
            (ClassifyTask, "queue", computed),
            (scheduler, "read", lambda *_, **__: None),
            (prefixes, "run_prefix", lambda _, ids, *__: Prefix(len(ids))),
        ]
        with ExitStack() as stack:
            for owner, name, part in parts:
                watched = self.around(part, getattr(owner, name))
                stack.enter_context(patch.object(owner, name, watched))
            for owner, name, value in constant:
                stack.enter_context(patch.object(owner, name, value))
            yield


def measure(model: Any, texts: Sequence[str], options: dict[str, Any]) -> Times:
    """Return the microseconds a prompt of one call: the process, its threads, and some parts."""
    watch = Watch()
    with watch.watching():
        owner, process = model._owner.run(time.thread_time), time.process_time()
        caller = time.thread_time()
        results = model.classify(texts, **options)
        caller = time.thread_time() - caller
        process = time.process_time() - process
        owner = model._owner.run(time.thread_time) - owner
    assert not any(result.error for result in results)

    tokenising = watch.parts["tokenising thread"]
    python = caller + owner + tokenising
    times = {
        "all": process,
        "python": python,
        "library's threads": process - python,
        "caller's thread": caller,
        "owner's thread": owner,
        **watch.parts,
    }
    return {name: seconds / len(texts) * 1e6 for name, seconds in times.items()}


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    models = cache / "core" / "models"
    parser = argparse.ArgumentParser(description="Time what Python costs around the device.")
    parser.add_argument("--model", type=Path, default=models / "smollm2-135m-instruct")
    parser.add_argument("--gemma", type=Path, default=models / "gemma-3-270m")
    parser.add_argument("--tokenizers", action="store_true", help="compare those of each family")
    parser.add_argument("--workload", choices=WORKLOADS, default="a")
    parser.add_argument("--prompts", type=int, default=4096)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path, help="also write the report to this file")
    return parser.parse_args()


@contextmanager
def without_a_device(directory: Path) -> Iterator[Any]:
    """Load a model that classifies as on a GPU; what a device would compute is constant."""
    nothing_kept = core.LoadConfig(options={"prefix_cache": 0})  # a prefix has no keys here
    with Cpu().load_model(directory, nothing_kept) as model:
        loaded = model._loaded
        cuts = chosen.cuts(loaded.config, on_gpu=True, fast=loaded.fast)
        model._loaded = replace(loaded, cuts=cuts, **GPU)
        yield model


def with_tokenizer(model: Any, tokenizer: Tokenizer) -> None:
    """Give the model another tokenizer, for every token of which it has a row."""
    loaded = model._loaded
    info = replace(loaded.info, vocab_size=tokenizer.vocab_size)
    model._loaded = model._served = replace(loaded, tokenizer=tokenizer, info=info)


def compare(arguments: argparse.Namespace, texts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Print the microseconds a labelled row of each shape's tokenizers, and their ratio."""
    figures: dict[str, dict[str, float]] = {}
    options = CASES["four labels"]
    with without_a_device(arguments.model) as model:
        for pair in pairs(arguments.gemma, arguments.model):
            runs: defaultdict[str, list[float]] = defaultdict(list)
            for turn in range(arguments.runs + 1):
                for name in ("converted", "published")[:: 1 - turn % 2 * 2]:  # either first
                    with_tokenizer(model, getattr(pair, name))
                    runs[name].append(measure(model, texts, options)["all"])
            best = {name: min(times[1:]) for name, times in runs.items()}
            figures[pair.shape] = {**best, "ratio": best["published"] / best["converted"]}
            shown = "  ".join(f"{name} {value:6.2f}" for name, value in figures[pair.shape].items())
            print(f"{pair.shape:10} ({FAMILIES[pair.shape]:12})  {shown}", flush=True)
    return figures


def profile(arguments: argparse.Namespace, texts: Sequence[str]) -> dict[str, Times]:
    """Print the times of one model in each case, the least of some runs."""
    times_of: dict[str, list[Times]] = {name: [] for name in CASES}
    with without_a_device(arguments.model) as model:
        for _ in range(arguments.runs + 1):
            for name, options in CASES.items():
                times_of[name].append(measure(model, texts, options))

    best = {name: min(runs[1:], key=lambda run: run["all"]) for name, runs in times_of.items()}
    for name, run in best.items():
        print(f"\n{arguments.model.name}, ({arguments.workload}), {name}: us a prompt")
        for part, value in run.items():
            print(f"  {part:28}{value:8.1f}")
    return best


def main() -> int:
    """Measure and print."""
    arguments = parse_arguments()
    texts = prompts(arguments.workload, arguments.prompts)
    figures = (compare if arguments.tokenizers else profile)(arguments, texts)
    if arguments.json:
        report = {"model": arguments.model.name, **vars(arguments), "microseconds": figures}
        arguments.json.write_text(json.dumps(report, indent=2, default=str) + "\n")
    return 0


if __name__ == "__main__":
    assert threading.current_thread() is threading.main_thread()
    raise SystemExit(main())
