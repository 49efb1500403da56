"""A bar chart of prompts per second as plain SVG, with the machine's name under it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from benchmarks.classify_parts.measuring import Result

_WIDTH, _NAMES, _VALUES = (
    760,
    240,
    130,
)  # pixels: all; the names on the left; the numbers after the bars
_BAR, _GAP, _HEAD = 16, 5, 30  # pixels: a bar's height, between bars, a panel's title
_OURS, _THEIRS, _TEXT = "#2563eb", "#94a3b8", "#1f2937"
_FONT = "font-family='system-ui, sans-serif'"


def chart(results: Sequence[Result], titles: dict[str, str], caption: str) -> str:
    """Draw one panel for each model and workload; its bars share a scale."""
    top, drawn = 10.0, []
    for (model, workload), group in groupby(results, lambda r: (r.model, r.workload)):
        rows = list(group)
        drawn.append(_text(10, top + 18, f"{model}: {titles[workload]}", 13, weight="bold"))
        drawn += _bars(rows, top + _HEAD)
        top += _HEAD + len(rows) * (_BAR + _GAP) + 12
    drawn.append(_text(10, top + 12, f"prompts per second, more is better. {caption}", 11))
    height = round(top + 26)
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {height}' "
            f"width='{_WIDTH}' height='{height}'>",
            f"<rect width='{_WIDTH}' height='{height}' fill='white'/>",
            *drawn,
            "</svg>\n",
        ]
    )


def _bars(rows: Sequence[Result], top: float) -> Iterator[str]:
    longest = max(row.prompts_per_second for row in rows)
    for number, row in enumerate(rows):
        y = top + number * (_BAR + _GAP)
        width = (_WIDTH - _NAMES - _VALUES) * row.prompts_per_second / longest
        colour = _OURS if row.contestant.startswith("core ") else _THEIRS
        yield _text(_NAMES - 8, y + 12, row.contestant, 12, anchor="end")
        yield (
            f"<rect x='{_NAMES}' y='{y:.0f}' width='{width:.1f}' height='{_BAR}' fill='{colour}'/>"
        )
        yield _text(_NAMES + width + 6, y + 12, f"{row.prompts_per_second:,.1f}", 12)


def _text(
    x: float, y: float, words: str, size: int, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' {_FONT} font-size='{size}' font-weight='{weight}' "
        f"text-anchor='{anchor}' fill='{_TEXT}'>{escape(words)}</text>"
    )
