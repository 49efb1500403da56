"""The report of a run as one HTML page, which needs no other file and no network."""

from __future__ import annotations

from pathlib import Path

from core_conformance.checking.registry import all_checks
from core_conformance.running.known import UsageError
from core_conformance.running.report import Report

_TEMPLATE = Path(__file__).with_name("page.html.jinja")


def write(report: Report, file: str) -> None:
    """Write a report as a page; raises `UsageError`."""
    try:
        Path(file).write_text(text(report), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error


def text(report: Report) -> str:
    """The page. Everything that a backend said is text in it, and no markup."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    clauses = {check.id: check.clause for check in all_checks().values()}
    return template.render(report=report, clauses=clauses)
