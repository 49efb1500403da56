"""From runs to figures: medians, tokens with and without reuse, and the machine's share."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.classify_parts.turns import Run

CLEAR = 0.01  # labels are compared where the best is ahead of the second by more


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a contestant on a workload: medians, and the maximum for the peak.

    ``share`` is that of the machine's measured matrix-multiply rate (None when it was not
    measured); ``agreeing`` of ``compared`` labels are those of the first contestant.
    ``cpu_seconds``: of all threads, for a machine that others use too.
    """

    model: str
    workload: str
    contestant: str
    about: str
    prompts: int
    seconds: float
    all_seconds: list[float]
    prompts_per_second: float
    tokens_per_second: float
    computed_tokens_per_second: float
    prompt_tokens: int
    computed_tokens: int
    share: float | None
    peak_bytes: int
    agreeing: int
    compared: int
    cpu_seconds: float | None = None


def layer_parameters(config: Mapping[str, Any]) -> int:
    """Return the number of weights in the matrices of all layers, from a config.json.

    A token that passes costs two floating-point operations for each. Attention scores, norms
    and the head are left out, for everyone.
    """
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    size = config.get("head_dim") or hidden // heads
    kv_heads = config.get("num_key_value_heads") or heads
    attention = hidden * size * (2 * heads + 2 * kv_heads)
    mlp = 3 * hidden * config["intermediate_size"]
    return int(config["num_hidden_layers"] * (attention + mlp))


def read_layer_parameters(directory: Path) -> int:
    """`layer_parameters` of a model directory."""
    return layer_parameters(json.loads((directory / "config.json").read_bytes()))


def rate(runs: Sequence[Run]) -> float | None:
    """The median of the measured matrix-multiply rates, in operations per second."""
    return statistics.median(run["flops_per_second"] for run in runs) if runs else None


def summary(
    runs: Sequence[Run], reference: Run, parameters: int, flops_per_second: float | None
) -> dict[str, Any]:
    """The figures of a `Result`. ``reference`` is a run whose labels and margins are known."""
    seconds = statistics.median(run["seconds"] for run in runs)
    last = runs[-1]
    count, tokens, computed = len(last["labels"]), last["prompt_tokens"], last["computed_tokens"]
    work = 2 * parameters * computed / seconds  # operations per second
    agreeing, compared = agreement(runs, reference)
    worked = [run["cpu_seconds"] for run in runs if "cpu_seconds" in run]
    return {
        "prompts": count,
        "seconds": seconds,
        "all_seconds": [run["seconds"] for run in runs],
        "prompts_per_second": count / seconds,
        "tokens_per_second": tokens / seconds,
        "computed_tokens_per_second": computed / seconds,
        "prompt_tokens": tokens,
        "computed_tokens": computed,
        "share": work / flops_per_second if flops_per_second else None,
        "peak_bytes": max(run["device_bytes"] or run["peak_bytes"] for run in runs),
        "agreeing": agreeing,
        "compared": compared,
        "cpu_seconds": statistics.median(worked) if worked else None,
    }


def agreement(runs: Sequence[Run], reference: Run) -> tuple[int, int]:
    """Return the number of labels equal to the reference's in every run, and of compared ones."""
    margins = reference["margins"] or [1.0] * len(reference["labels"])
    clear = [row for row, margin in enumerate(margins) if margin > CLEAR]
    same = sum(all(run["labels"][row] == reference["labels"][row] for run in runs) for row in clear)
    return same, len(clear)


def beside(results: Sequence[Result], result: Result, contestant: str) -> Result | None:
    """Another contestant on the same model and workload."""
    place = (result.model, result.workload, contestant)
    same = (row for row in results if (row.model, row.workload, row.contestant) == place)
    return next(same, None)


def ratio(results: Sequence[Result], result: Result, contestant: str) -> float | None:
    """Return the speed divided by another contestant's on the same workload."""
    other = beside(results, result, contestant)
    return result.prompts_per_second / other.prompts_per_second if other else None
