"""The differences between two reports: of another version, another machine, or another backend.

Every difference is one row: its kind, its name, what A has and what B has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import msgspec

from core.system.limited_files import Refused, json_value, read_limited
from core_conformance.running.known import UsageError
from core_conformance.running.report import Report
from core_conformance.running.result import Result, Status

_MOST_BYTES = 2**25  # of a report: each check may have a traceback
_NONE = "-"
_REFUSED = "refused"
_GOOD = {str(Status.PASSED), str(Status.FIXED), _REFUSED}
_BAD = {str(status) for status in (Status.FAILED, Status.KNOWN, Status.CRASHED, Status.TIMEOUT)}
_SLOWER, _SECONDS = 2.0, 1.0  # times, and seconds more, by which a check's time is listed


class Kind(StrEnum):
    """The kinds of differences, in the order in which they are listed."""

    FAILED = "newly failed"
    MENDED = "mended"
    REFUSED = "newly refused"
    ANSWERED = "no longer refused"
    CHANGED = "changed"
    NEW = "new"
    GONE = "gone"
    CAPABILITY = "capability"
    RUN = "run"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. ``note`` is the reason of a check in B, or in A if it has none."""

    kind: Kind
    name: str
    a: str
    b: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences, by kind and then by name."""

    differences: tuple[Difference, ...]

    @property
    def worse(self) -> bool:
        """True if B fails what A passed."""
        return any(one.kind is Kind.FAILED for one in self.differences)

    def summary(self) -> str:
        """Return the number of differences of each kind, in one line."""
        counts = Counter(one.kind for one in self.differences)
        parts = [f"{counts[kind]} {kind}" for kind in Kind if counts[kind]]
        return ", ".join(parts) or "no differences"


def read(file: str) -> Report:
    """Read a report that ``--report`` or ``--json`` wrote; raises `UsageError`."""
    try:
        return msgspec.convert(json_value(read_limited(Path(file), _MOST_BYTES)), Report)
    except (OSError, Refused, msgspec.ValidationError) as error:
        raise UsageError(f"{file} cannot be read as a conformance report: {error}") from error


def compare(a: Report, b: Report) -> Comparison:
    """Return the differences between two reports."""
    return Comparison((*_of_checks(a, b), *_of_capabilities(a, b), *_of_runs(a, b), *_times(a, b)))


def outcome(result: Result) -> str:
    """Return how a check ended; a refusal that was checked in its place is one of its own."""
    return _REFUSED if result.refused and result.status is Status.PASSED else str(result.status)


def _of_checks(a: Report, b: Report) -> Iterable[Difference]:
    left, right = ({check.id: check for check in report.checks} for report in (a, b))
    rows = [
        _of_check(id, left.get(id), right.get(id))
        for id in sorted(left.keys() | right.keys())
        if id not in left or id not in right or outcome(left[id]) != outcome(right[id])
    ]
    return sorted(rows, key=lambda row: list(Kind).index(row.kind))


def _of_check(id: str, a: Result | None, b: Result | None) -> Difference:
    before, after = (_NONE if one is None else outcome(one) for one in (a, b))
    reasons = [one.reason.partition("\n")[0] for one in (b, a) if one is not None]
    return Difference(_kind(before, after), id, before, after, next(filter(None, reasons), ""))


def _kind(before: str, after: str) -> Kind:
    if _NONE in (before, after):
        return Kind.NEW if before == _NONE else Kind.GONE
    if before in _GOOD and after in _BAD:
        return Kind.FAILED
    if before in _BAD and after in _GOOD:
        return Kind.MENDED
    if _REFUSED in (before, after):
        return Kind.REFUSED if after == _REFUSED else Kind.ANSWERED
    return Kind.CHANGED


def _of_capabilities(a: Report, b: Report) -> Iterator[Difference]:
    left, right = a.backend.capabilities, b.backend.capabilities
    for name in sorted({*left} ^ {*right}):
        before, after = ("declared" if name in names else _NONE for names in (left, right))
        yield Difference(Kind.CAPABILITY, name, before, after)


def _of_runs(a: Report, b: Report) -> Iterator[Difference]:
    """Yield what else differs: verdict, versions, backend, model, platform and seed."""
    left, right = map(_facts, (a, b))
    for name in left:
        if left[name] != right[name]:
            yield Difference(Kind.RUN, name, str(left[name]), str(right[name]))


def _facts(report: Report) -> dict[str, object]:
    """Return the facts about a run, by their place in the report."""
    names = ("suite", "backend", "model", "platform")
    parts = {name: asdict(getattr(report, name)) for name in names}
    parts["backend"].pop("capabilities")
    facts = {f"{part}.{name}": value for part in parts for name, value in parts[part].items()}
    return {"verdict": report.verdict, **facts, "seed": report.seed}


def _times(a: Report, b: Report) -> Iterator[Difference]:
    """Yield the total time, and that of each check which takes much longer or shorter."""
    yield Difference(Kind.SECONDS, "all checks", f"{a.seconds:.2f}", f"{b.seconds:.2f}")
    before = {check.id: check.seconds for check in a.checks}
    for check in b.checks:
        less, more = sorted((before.get(check.id, check.seconds), check.seconds))
        if more > _SLOWER * less and more - less > _SECONDS:
            left, right = f"{before[check.id]:.2f}", f"{check.seconds:.2f}"
            yield Difference(Kind.SECONDS, check.id, left, right)
