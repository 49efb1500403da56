"""Reports: the summary of a run as a JSON file, for programs that monitor it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from core.system import outputs
from core_cli import output

FORMAT = 1
_KIND = "core.report"
FILE = outputs.Kind("a report", re.compile(rb'\{"kind": ?"%b"' % _KIND.encode()))
"""The start of a report file that this program wrote."""


def check(path: str | None) -> None:
    """Raise `OutputError` before the work if a report may not be written."""
    if path is not None:
        outputs.check(path, FILE)


def save(path: str, facts: Mapping[str, object]) -> None:
    """Write a report, replacing an earlier one. Raises `OutputError` and OSError."""
    data = output.json_lines([{"kind": _KIND, "format": FORMAT, **facts}])
    outputs.write(path, data, FILE)
