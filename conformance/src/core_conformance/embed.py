"""The suite inside an author's own tests, in one line::

test_conformance = conformance_tests("mine", model="models/tiny")
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

import pytest

from core_conformance import MARKER
from core_conformance.checking.check import Check
from core_conformance.front.plugin import conduct
from core_conformance.running.known import flat
from core_conformance.running.settings import Settings

Test = Callable[[Check, pytest.FixtureRequest], None]


def conformance_tests(
    backend: str | None = None,
    *,
    model: str | os.PathLike[str] | None = None,
    options: Mapping[str, object] | None = None,
    known_failures: Mapping[str, str] | None = None,
    timeout: float | None = None,
    isolate: bool | None = None,
) -> Test:
    """Return a test function that pytest runs once for each check; give it a name that it collects.

    Settings not given here come from the options ``--core-*`` and from the table
    ``[tool.core-conformance]``. Raises `UsageError` for a known failure without a reason.
    """
    known = None if known_failures is None else flat(known_failures, "known_failures")
    path = None if model is None else os.fspath(model)
    settings = Settings(backend, path, dict(options or {}), known, timeout, isolate)

    mark: pytest.MarkDecorator = getattr(pytest.mark, MARKER)

    @mark.with_args(settings)
    def test_conformance(core_conformance_check: Check, request: pytest.FixtureRequest) -> None:
        conduct(request)

    return test_conformance
