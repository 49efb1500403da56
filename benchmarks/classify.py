"""Measure the speed of ``classify``: this project's backends and other libraries, in one run.

Every contestant has a separate process, with the same number of threads, and the MLX ones the same
BLAS; runs are interleaved, one at a time, and medians are compared. The time is measured from texts
to labels. The peers are mlx-lm, llama-cpp-python, CTranslate2, transformers and OpenVINO's own
export (optimum-intel); the report names those that are not installed. llama.cpp reads the model's
GGUF file, and files of other quantisations, which are made of it on the first run and cached;
CTranslate2 converts the model on the first run, which needs transformers and torch beside it, and
optimum-intel exports it::

    pip install mlx-lm==0.32.2 llama-cpp-python torch transformers
    python benchmarks/classify.py --json classify.json --chart classify.svg

A peer may live in another environment (``--mlx-lm-python``, ``--llama-python``,
``--transformers-python``, ``--ctranslate2-python``, ``--openvino-export-python``). ``--quick``
tries everything out in a minute or two. Ends with 1 when a mark is missed or labels differ where
the first contestant is sure of them.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from rich.console import Console

from benchmarks import machine
from benchmarks.classify_parts import measuring, report
from benchmarks.classify_parts.comparison import TITLES, Comparison, threads_environment
from benchmarks.classify_parts.contestants import (
    EACH_OFF,
    MLX_LM,
    MLX_LM_BEST,
    MODELS,
    NAMES,
    OURS,
    Files,
    Pythons,
    fetch,
    given,
    specs,
    variant,
)
from benchmarks.classify_parts.measuring import Result
from benchmarks.classify_parts.workloads import WORKLOADS

# Multiples of mlx-lm's speed: (target, minimum); two thirds of them at its best settings.
# From (e) on they guard against regressions; no target compared with mlx-lm was set.
MARKS = {"a": (5.0, 3.5), "b": (10.0, 8.0), "c": (2.0, 1.5), "d": (4.0, 3.0)}
MARKS |= {"e": (12.0, 8.0), "f": (1.5, 1.0), "g": (2.0, 1.5), "h": (4.0, 3.0)}
QUICK = {"prompts": 4, "runs": 1, "models": [MODELS[0]], "workloads": ["a", "c"]}


def missed(results: Sequence[Result]) -> list[str]:
    """In words: marks that ours does not reach, and labels that are not the same."""
    return [
        *(words for row in results if row.contestant == OURS for words in _missed(results, row)),
        *(
            f"{row.model} ({row.workload}): {row.contestant} gives {row.compared - row.agreeing} "
            f"other labels of {row.compared}"
            for row in results
            if row.agreeing < row.compared and not _rounds(row.contestant)
        ),
    ]


def _rounds(contestant: str) -> bool:
    """Return True for one that computes with rounded weights or activations: other numbers."""
    return any(name in contestant for name in ("llama", "bfloat16", "int8"))


def _missed(results: Sequence[Result], row: Result) -> Iterator[str]:
    where = f"{row.model} ({row.workload})"
    aim, least = MARKS[row.workload]
    for name, part in ((MLX_LM, 1.0), (MLX_LM_BEST, 2 / 3)):
        reached = measuring.ratio(results, row, name)
        if reached is not None and reached < least * part:
            wanted = f"at least {least * part:.2f} wanted, {aim * part:.2f} aimed at"
            yield f"{where}: {reached:.2f} times {name}; {wanted}"
    other = measuring.beside(results, row, MLX_LM)
    if other and row.peak_bytes > other.peak_bytes:
        yield f"{where}: {row.peak_bytes / other.peak_bytes:.2f} times the memory of {MLX_LM}"


def parse_arguments(given_arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Time classify, beside other libraries.")
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS))
    add("--model", type=Path, help="a model directory of your own, instead")
    add("--gguf", type=Path, help="and its GGUF file, for llama.cpp")
    add("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    add("--contestants", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    add("--variants", nargs="+", type=variant, default=[], metavar="NAME=JSON",
        help=f"further lines: {OURS} loaded with these options")  # fmt: skip
    add("--each-off", action="store_true",
        help="further lines: each fast path of mlx_cpu switched off")  # fmt: skip
    add("--prompts", type=int, default=256)
    add("--runs", type=int, default=5, help="runs of each; default 5")
    add("--threads", type=int, default=os.cpu_count(), help="default: one for each core")
    for library in ("mlx-lm", "llama", "transformers", "ctranslate2", "openvino-export"):
        add(f"--{library}-python", default=sys.executable, metavar="PATH")
    add("--json", type=Path, metavar="FILE")
    add("--chart", type=Path, metavar="FILE", help="an SVG file")
    add("--quick", action="store_true", help="4 prompts, once: does everything run?")
    if "--quick" in (sys.argv[1:] if given_arguments is None else given_arguments):
        parser.set_defaults(**QUICK)
    arguments = parser.parse_args(given_arguments)
    arguments.variants = {**(EACH_OFF if arguments.each_off else {}), **dict(arguments.variants)}
    arguments.pythons = Pythons(
        mlx_lm=arguments.mlx_lm_python,
        llama=arguments.llama_python,
        transformers=arguments.transformers_python,
        ctranslate2=arguments.ctranslate2_python,
        openvino_export=arguments.openvino_export_python,
    )
    return arguments


def main(given_arguments: Sequence[str] | None = None) -> int:
    """Measure, show and write; return 1 if a mark is missed, which a quick run does not check."""
    arguments = parse_arguments(given_arguments)
    about = machine.describe(arguments.threads)
    comparison = Comparison(
        arguments.prompts, arguments.runs, threads_environment(arguments.threads)
    )
    own = [given(arguments.model, arguments.gguf)] if arguments.model else None
    for files in own or map(fetch, arguments.models):
        compare(comparison, files, arguments, about)
    console = Console(width=None if sys.stdout.isatty() else 140)
    report.show(console, comparison.results, TITLES, [MLX_LM, MLX_LM_BEST])
    problems = [] if arguments.quick else missed(comparison.results)
    report.show_lines(console, comparison.skipped, problems, machine.caption(about))
    return int(bool(problems))


def compare(
    comparison: Comparison, files: Files, arguments: argparse.Namespace, about: dict[str, Any]
) -> None:
    """Run all workloads on one model. Files are written after each."""
    contestants, lacking = specs(
        files, arguments.contestants, arguments.variants, arguments.pythons, arguments.threads
    )
    comparison.skipped |= {f"{files.name}: {name}": why for name, why in lacking.items()}
    for workload in arguments.workloads:
        comparison.measure(files.name, files.directory, workload, contestants)
        comparison.write(arguments.json, arguments.chart, about, MARKS)


if __name__ == "__main__":
    sys.exit(main())
