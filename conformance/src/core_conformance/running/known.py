"""Known failures: a table ``id = "reason, link"`` of checks that a backend is allowed to fail.

It is strict. A check of the table that passes is an error, so that a line goes when its bug does.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from core.system.limited_files import Refused, read_limited, toml_table
from core_conformance.running.result import Result, Status

MOST_BYTES = 2**22
"""The most bytes of a file of settings: a reason for each check takes a hundredth of it."""


class UsageError(ValueError):
    """Something that the user wrote, in a file or on the command line, cannot be used."""


def read(file: Path) -> dict[str, str]:
    """Return the table in a TOML file. Raises `UsageError`."""
    try:
        table = toml_table(read_limited(file, MOST_BYTES))
    except (OSError, Refused) as error:
        raise UsageError(f"{file} cannot be read as a table of known failures: {error}") from error
    return flat(table, str(file))


def flat(table: Mapping[str, object], place: str) -> dict[str, str]:
    """Flatten ``{"stream": {"close": "..."}}``, as TOML reads an id without quotes."""
    reasons = dict(_flat(table))
    for check_id, reason in reasons.items():
        if not isinstance(reason, str) or not reason.strip():
            raise UsageError(
                f"{place}: the known failure {check_id!r} has no reason. "
                f'Write {check_id!r} = "why, and a link to the issue".'
            )
    return {check_id: str(reason) for check_id, reason in reasons.items()}


def validated(known: Mapping[str, str], ids: Iterable[str]) -> Mapping[str, str]:
    """Return the table, unchanged. Raises `UsageError` for an id that is not a check's."""
    ids = list(ids)
    for check_id in known:
        if check_id not in ids:
            close = difflib.get_close_matches(check_id, ids, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"Unknown check {check_id!r} among the known failures.{hint} "
                "CLAUSES.md lists all checks; delete the entry if the check was removed."
            )
    return known


def judged(result: Result, known: Mapping[str, str]) -> Result:
    """Return the result of a check, changed by what the table of known failures says of it."""
    reason = known.get(result.id)
    if reason is None or result.status in (Status.NOT_RUN, Status.NOT_TESTABLE):
        return result
    if result.status is Status.PASSED:
        advice = f"passes now: delete its line from the known failures, which says {reason!r}"
        return replace(result, status=Status.FIXED, reason=advice)
    return replace(result, status=Status.KNOWN, reason=f"{reason} [{result.reason}]")


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
