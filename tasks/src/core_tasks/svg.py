"""Plain SVG: bars, frames and words that follow the viewer's theme.

The background is transparent, so that it suits a light page as on a dark one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

from core.system.outputs import Kind
from core.system.terminal import visible

_MARK = "<!-- drawn by core -->"
KIND = Kind("a drawing", re.compile(rb"<svg [^>]*>" + _MARK.encode()), private=False)
"""How a file with a drawing is known to be one of this program's."""

_BLUE = "#3b82f6"
_STYLE = """<style>
text { font-family: system-ui, sans-serif; fill: #1f2937 }
line, rect.frame { stroke: #6b7280; fill: none }
@media (prefers-color-scheme: dark) {
  text { fill: #e5e7eb }
  line, rect.frame { stroke: #9ca3af }
}
</style>"""


def document(width: float, height: float, drawn: Iterable[str]) -> str:
    """Return all that was drawn, as one file; sizes are pixels, here and in what follows."""
    size = f"viewBox='0 0 {width} {height}' width='{width}' height='{height}'"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size}>{_MARK}"
    return "\n".join([head, _STYLE, *drawn, "</svg>\n"])


def bar(x: float, y: float, width: float, height: float, opacity: float, title: str) -> str:
    """Return a filled rectangle that says ``title`` where it is pointed at."""
    return (
        f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' fill='{_BLUE}' "
        f"fill-opacity='{opacity:.2f}'><title>{safe(title)}</title></rect>"
    )


def frame(x: float, y: float, width: float, height: float) -> str:
    """Return the outline of a rectangle."""
    size = f"width='{width:.1f}' height='{height:.1f}'"
    return f"<rect class='frame' x='{x}' y='{y}' {size}/>"


def text(
    x: float,
    y: float,
    words: str,
    size: int,
    anchor: str = "start",
    weight: str = "normal",
    *,
    turned: bool = False,
) -> str:
    """Words on a line, anchored at its ``start``, ``middle`` or ``end``."""
    turn = f" transform='rotate(-40 {x:.1f} {y:.1f})'" if turned else ""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' font-weight='{weight}' "
        f"text-anchor='{anchor}'{turn}>{safe(words)}</text>"
    )


def safe(words: str) -> str:
    """Text of any origin as XML: controls as escapes, and without the two that no XML may hold."""
    plain = visible(words).replace("\ufffe", "\ufffd").replace("\uffff", "\ufffd")
    return escape(plain)
