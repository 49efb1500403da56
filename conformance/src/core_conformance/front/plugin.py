"""The pytest plugin: options, and what a session's conformance tests come to.

It does nothing in a session without conformance tests, and imports next to nothing there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from core_conformance import MARKER

if TYPE_CHECKING:
    from core_conformance.front.pytest_session import Session

SUITE = "core_conformance"
_SESSION: pytest.StashKey[Session] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options ``--core-*``."""
    group = parser.getgroup("infercore-conformance", "conformance of backends of core")
    group.addoption("--core-backend", metavar="NAME", help="Backend to test.")
    group.addoption("--core-model", metavar="PATH", help="Model to test with.")
    group.addoption(
        "--core-option",
        metavar="K=V",
        action="append",
        default=[],
        help="Set a load option, such as context_len=512 or a backend-specific one. Repeatable.",
    )

    group.addoption(
        "--core-known",
        metavar="FILE",
        help='TOML file of known failures: check id = "reason, link".',
    )
    group.addoption(
        "--core-timeout",
        metavar="S",
        type=float,
        help="Time limit per check, in seconds. [default: 120, more for slow models]",
    )
    group.addoption(
        "--core-isolate",
        action="store_true",
        default=None,
        help="Run each check in its own process. [default: only after one hangs]",
    )
    group.addoption(
        "--core-seed",
        metavar="N",
        type=int,
        help="Seed for generated inputs. [default: 0; random with --core-deep]",
    )
    group.addoption(
        "--core-deep",
        metavar="S",
        type=float,
        help="Run everything and generate inputs for S seconds.",
    )
    group.addoption(
        "--core-certify", action="store_true", help="Fail unless every check ran and passed."
    )

    group.addoption("--core-report", metavar="FILE", help="Write a JSON report.")
    group.addoption(
        "--core-badge",
        metavar="FILE",
        help="Write a badge: SVG if FILE ends in .svg, else JSON for shields.io.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and make ``--pyargs core_conformance`` find the suite."""
    config.addinivalue_line("markers", f"{MARKER}(settings): a conformance test of core")
    whole = any(config.getoption(f"core_{name}") for name in ("certify", "report", "badge"))
    if whole and config.getoption("numprocesses", None):  # pytest-xdist
        raise pytest.UsageError(
            "A verdict needs a single process: remove -n, or --core-certify, "
            "--core-report and --core-badge."
        )
    if config.option.pyargs:  # a project's own python_files would hide the suite's file
        suite = f"{SUITE}.test_suite"
        config.args[:] = [
            suite + arg[len(SUITE) :] if _is_suite(arg) else arg for arg in config.args
        ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each check from a test function with the suite's marker."""
    if metafunc.definition.get_closest_marker(MARKER):
        from core_conformance.checking.check import all_checks
        from core_conformance.checking.material import use
        from core_conformance.running.known import UsageError
        from core_conformance.running.settings import nearest_table

        with suppress(UsageError):  # an invalid table is reported once all is collected
            use(nearest_table(metafunc.config.invocation_params.dir).material)
        checks = all_checks()
        metafunc.parametrize("core_conformance_check", list(checks.values()), ids=list(checks))


@pytest.hookimpl(tryfirst=True)  # before -k and -m leave tests out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find out what is to be checked, before anything runs."""
    requested = any(config.getoption(name) for name in ("core_certify", "core_backend"))
    if requested or any(item.get_closest_marker(MARKER) for item in items):
        from core_conformance.front.pytest_session import Session

        config.stash[_SESSION] = Session(config, items)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close models, write files, and fail a certification that was not earned."""
    ours = session.config.stash.get(_SESSION, None)
    if ours is not None:
        session.exitstatus = ours.finish(int(session.exitstatus))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the verdicts."""
    ours = config.stash.get(_SESSION, None)
    if ours is not None:
        ours.summarise(terminalreporter)


def conduct(request: pytest.FixtureRequest) -> None:
    """Run the check of this test: what every conformance test does."""
    request.config.stash[_SESSION].conduct(request.node)


def _is_suite(argument: str) -> bool:
    return argument == SUITE or argument.startswith(f"{SUITE}::")
