"""The figures beside what is aimed at."""

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


GOALS = (
    Goal(
        "answers",
        ("labels", "flip_rate"),
        "rows that flip with the options' order",
        operator.le,
        0.0,
    ),
    Goal("answers", ("labels", "accuracy"), "headlines right", operator.ge, 0.95),
    Goal("streams", ("ratio",), "streams over the library, tokens/s", operator.ge, 0.95),
    Goal("lists", ("whole_ratio",), "a list in one request over the library", operator.ge, 0.97),
    Goal("lists", ("single_ratio",), "one text a request over the library", operator.ge, 0.8),
    Goal("latency", ("added_p50_ms",), "added to one decision, p50, ms", operator.lt, 2.0),
    Goal(
        "clients",
        ("llama_cpp_over_llama_cpp_python",),
        "decisions/s, llama_cpp over llama-cpp-python's server",
        operator.ge,
        1.5,
    ),
    Goal(
        "clients",
        ("mlx_cpu_over_llama_cpp_python",),
        "decisions/s, mlx_cpu over llama-cpp-python's server",
        operator.ge,
        2.0,
    ),
    Goal(
        "clients",
        ("mlx_cpu_over_mlx_lm_server",),
        "decisions/s, mlx_cpu over mlx_lm.server",
        operator.ge,
        3.0,
    ),
    Goal(
        "prefix", ("ratio",), "second call behind one instruction over the first", operator.ge, 1.5
    ),
)
_SIGNS = {operator.le: "<=", operator.ge: ">=", operator.lt: "<"}


def markdown(figures: dict[str, Any]) -> str:
    """A row for each goal whose part was measured."""
    lines = ["| | measured | aimed at | |", "|---|---|---|---|"]
    for goal in GOALS:
        found = _found(figures.get(goal.part), goal.path)
        if found is not None:
            met = "met" if goal.compare(found, goal.bound) else "missed"
            aim = f"{_SIGNS[goal.compare]} {goal.bound:g}"
            lines.append(f"| {goal.title} | {found:.3f} | {aim} | {met} |")
    return "\n".join(lines)


def _found(figures: Any, path: tuple[str, ...]) -> float | None:
    for name in path:
        if figures is None or name not in figures:
            return None
        figures = figures[name]
    return float(figures)
