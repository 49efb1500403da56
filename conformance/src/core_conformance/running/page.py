"""The report of a run as one HTML page, which needs no other file and no network."""

from __future__ import annotations

import re
from pathlib import Path

from core.system import outputs
from core_conformance.checking.check import all_checks
from core_conformance.running.report import Report, write_bytes

PAGE = outputs.Kind(
    "a page of a conformance report",
    re.compile(rb'<!doctype html>.{0,200}<meta name="generator" content="core-conformance">', re.S),
    private=False,
)
_TEMPLATE = Path(__file__).with_name("page.html.jinja")


def write(report: Report, file: str) -> None:
    """Write a report as a page; raises `UsageError`."""
    write_bytes(text(report).encode(errors="backslashreplace"), file, PAGE)


def text(report: Report) -> str:
    """Return the page. Everything that a backend said is text in it, and no markup."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    clauses = {check.id: check.clause for check in all_checks().values()}
    return template.render(report=report, clauses=clauses)
