"""Choosing some of the checks, by what an author types: an id, an area, or a pattern."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from core_conformance.checking.check import Check
from core_conformance.running.known import UsageError


def chosen(checks: Sequence[Check], wanted: Sequence[str]) -> tuple[Check, ...]:
    """Return the checks that one of ``wanted`` means, all without any.

    Raises `UsageError` for none.

    ``stop.tokens`` is one check, ``stop`` an area of them, and ``*.stop*`` a pattern.
    """
    for words in wanted:
        if not any(_means(words, check.id) for check in checks):
            raise UsageError(_unknown(words, [check.id for check in checks]))
    return tuple(
        check for check in checks if not wanted or any(_means(words, check.id) for words in wanted)
    )


def _means(words: str, check_id: str) -> bool:
    area, _, _ = check_id.partition(".")
    return words in (check_id, area, f"{area}.") or fnmatchcase(check_id, words)


def _unknown(words: str, ids: Sequence[str]) -> str:
    areas = sorted({check_id.partition(".")[0] for check_id in ids})
    close = difflib.get_close_matches(words, [*ids, *areas], n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"No check that applies to this backend is called {words!r}.{hint} Give an id, a pattern "
        f"like 'stop.*', or an area: {', '.join(areas)}."
    )
