"""Reports: what came of a run, as a JSON file for programs that watch over it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.cli import output
from core.system import outputs

FORMAT = 1
_KIND = "core.report"
FILE = outputs.Kind("a report", re.compile(rb'\{"kind": ?"%b"' % _KIND.encode()))
"""How a file is known to be a report that this program wrote."""


def check(path: str | None) -> None:
    """Raise `OutputError` before the work where a report may not be written."""
    if path is not None:
        outputs.check(path, FILE)


def save(path: str, facts: Mapping[str, object]) -> None:
    """Write a report, in the place of an earlier one. Raises `OutputError` and OSError."""
    data = output.json_lines([{"kind": _KIND, "format": FORMAT, **facts}])
    outputs.write(path, data, FILE)
