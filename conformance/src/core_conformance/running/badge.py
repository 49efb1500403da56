"""The badge of a run, which its owner can host: for shields.io, or as an image."""

from __future__ import annotations

import re
from collections import Counter
from html import escape

from core.system import outputs
from core_conformance.running.report import write, write_bytes
from core_conformance.running.result import Status
from core_conformance.running.run import Run

BADGE = outputs.Kind(
    "a badge",
    re.compile(
        rb'\{\s*"schemaVersion": 1,\s*"label": "core protocol '
        rb'|<svg [^>]* role="img" aria-label="core protocol '
    ),
    private=False,
)
_SVG = ".svg"
_COLOURS = {"conformant": "brightgreen", "not conformant": "red", "incomplete": "lightgrey"}
_FILLS = {"brightgreen": "#4c1", "green": "#97ca00", "red": "#e05d44", "lightgrey": "#9f9f9f"}
_HEIGHT, _SIZE, _PAD, _DIGIT = 20, 11, 6, 7  # pixels, as of shields.io; _DIGIT: of a character


def badge_of(run: Run) -> dict[str, object]:
    """Return the badge: the protocol and how the checks ended, in the colour of the verdict.

    Refusals are counted apart from the other checks passed: they tell what a backend leaves out.
    """
    verdict = run.verdict()
    count = Counter(result.status for result in run.all_results())

    refused = run.refused()
    parts = [f"{count.pop(Status.PASSED, 0) - refused} checked", f"{refused} refused"]
    parts += [f"{number} {status}" for status, number in sorted(count.items())]

    with_known = verdict.kind == "conformant" and verdict.known
    return {
        "schemaVersion": 1,
        "label": f"core protocol {run.backend.protocol}",
        "message": ", ".join(parts),
        "color": "green" if with_known else _COLOURS[verdict.kind],
    }


def write_badge(run: Run, file: str) -> None:
    """Write the badge as an image if the file's name ends in ``.svg``, otherwise as JSON.

    Raises `UsageError`.
    """
    badge = badge_of(run)
    if file.lower().endswith(_SVG):
        write_bytes(svg(badge).encode(), file, BADGE)
    else:
        write(badge, file, BADGE)


def svg(badge: dict[str, object]) -> str:
    """Return the badge as an image: the label on grey, the message on the colour.

    Each text states its width in pixels, so that it fits whatever font the viewer has.
    """
    label, message = (escape(str(badge[part])) for part in ("label", "message"))
    left, right = (_DIGIT * len(str(badge[part])) for part in ("label", "message"))
    middle, width = left + 2 * _PAD, left + right + 4 * _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{_HEIGHT}" role="img" '
        f'aria-label="{label}: {message}">\n'
        f"<title>{label}: {message}</title>\n"
        f'<rect width="{middle}" height="{_HEIGHT}" fill="#555"/>\n'
        f'<rect x="{middle}" width="{width - middle}" height="{_HEIGHT}" '
        f'fill="{_FILLS[str(badge["color"])]}"/>\n'
        f'<g fill="#fff" font-family="Verdana,Geneva,DejaVu Sans,sans-serif" font-size="{_SIZE}">\n'
        f'<text x="{_PAD}" y="14" textLength="{left}">{label}</text>\n'
        f'<text x="{middle + _PAD}" y="14" textLength="{right}">{message}</text>\n'
        "</g>\n</svg>\n"
    )
