"""The list of clauses, made from the checks: ``python -m core_conformance.clauses --write``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from core.protocols import Capability
from core_conformance.checking.check import Check, Need, all_checks

FILE = Path(__file__).with_name("CLAUSES.md")
_HEAD = """\
# Clauses

Requirements of a conformant backend, one check each. This file is generated from the checks:
`python -m core_conformance.clauses --write`. A backend that does not declare what a clause needs
must refuse it instead, at the call, before any work. A clause applies to backends written for
protocol version `since` or later. If a model gives a check nothing to compare, the check is "not
testable" with this model: neither a failure nor a certification.
"""


def text() -> str:
    """Return the file's content: a table for each area."""
    checks = all_checks().values()
    areas = dict.fromkeys(check.id.partition(".")[0] for check in checks)
    return _HEAD + "".join(
        _area(area, [check for check in checks if check.id.partition(".")[0] == area])
        for area in areas
    )


def main(arguments: Sequence[str]) -> int:
    """Print the list; with ``--write``, write the file. Returns the exit status."""
    if list(arguments) not in ([], ["--write"]):
        sys.stderr.write("usage: python -m core_conformance.clauses [--write]\n")
        return 2
    if arguments:
        FILE.write_text(text(), encoding="utf-8")
    else:
        sys.stdout.write(text())
    return 0


def _area(area: str, checks: Sequence[Check]) -> str:
    rows = "".join(map(_row, checks))
    return f"\n## {area}\n\n| id | clause | needs | since |\n|---|---|---|---|\n{rows}"


def _row(check: Check) -> str:
    needs = ", ".join(map(_need, check.needs)) or "-"
    clause = " ".join(check.clause.replace("|", "\\|").split())
    return f"| `{check.id}` | {clause} | {needs} | {check.since} |\n"


def _need(need: Need) -> str:
    return need if isinstance(need, Capability) else " or ".join(need)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
