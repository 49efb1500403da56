"""The tests that ``pytest --pyargs core_conformance`` collects: one for each check."""

from __future__ import annotations

from core_conformance.embed import conformance_tests

test_conformance = conformance_tests()
