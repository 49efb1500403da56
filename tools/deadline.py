"""A pytest plugin that begins no test after a time: ``-p tools.deadline --minutes 45``.

The tests that the time does not reach are skipped, by name in the summary; what failed before is
shown as ever, which a run that is killed cannot do.
"""

from __future__ import annotations

import time

import pytest

_end = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--minutes", type=float, help="begin no test after so many minutes")


def pytest_configure(config: pytest.Config) -> None:
    minutes: float | None = config.option.minutes
    if minutes is not None:
        config.stash[_end] = time.monotonic() + 60 * minutes


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.monotonic() > item.config.stash.get(_end, float("inf")):
        pytest.skip("the time did not reach it")
