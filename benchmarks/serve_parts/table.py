"""The figures compared with their targets."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple


class Goal(NamedTuple):
    """A figure by its path, what it is to be, and how that is called."""

    part: str
    path: tuple[str, ...]
    title: str
    compare: Callable[[float, float], bool]
    bound: float


_OF_MLX_LM = "mlx_cpu: decisions/s over mlx_lm.server"
_THEIRS = "decisions/s over llama-cpp-python's server"
GOALS = (
    Goal("answers", ("labels", "flip_rate"), "rows that flip with the options", operator.le, 0.0),
    Goal("answers", ("labels", "accuracy"), "headlines right", operator.ge, 0.95),
    Goal("streams", ("ratio",), "tokens/s of streams over the library", operator.ge, 0.95),
    Goal("lists", ("whole_ratio",), "texts/s of a list over the library", operator.ge, 0.97),
    Goal("lists", ("single_ratio",), "of a text a request, over the library", operator.ge, 0.8),
    Goal("latency", ("added_p50_ms",), "added to one decision, p50, ms", operator.lt, 2.0),
    *(
        Goal("clients", (f"{ours}_over_{theirs}",), f"{ours}: {_THEIRS}{note}", operator.ge, bound)
        for ours, bound in (("llama_cpp", 1.5), ("mlx_cpu", 2.0))
        for theirs, note in (
            ("llama_cpp_python", ""),
            ("label_alone", ", which tells labels alone"),
        )
    ),
    Goal("clients", ("mlx_cpu_over_mlx_lm_server",), _OF_MLX_LM, operator.ge, 3.0),
    Goal("prefix", ("ratio",), "the first call's seconds over the second's", operator.ge, 1.5),
)
_SIGNS: dict[Callable[[float, float], bool], str] = {
    operator.le: "<=",
    operator.ge: ">=",
    operator.lt: "<",
}


def markdown(figures: dict[str, Any]) -> str:
    """A row for each goal whose part was measured."""
    lines = ["| | measured | aimed at | |", "|---|---|---|---|"]
    for goal in GOALS:
        value = _found(figures.get(goal.part), goal.path)
        if value is not None:
            met = "met" if goal.compare(value, goal.bound) else "missed"
            aim = f"{_SIGNS[goal.compare]} {goal.bound:g}"
            lines.append(f"| {goal.title} | {value:.3f} | {aim} | {met} |")
    return "\n".join(lines)


def _found(figures: Any, path: tuple[str, ...]) -> float | None:
    for name in path:
        if figures is None or name not in figures:
            return None
        figures = figures[name]
    return float(figures)
