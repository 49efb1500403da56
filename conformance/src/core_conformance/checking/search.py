"""Searching generated inputs for one that a backend gets wrong, and then for the smallest such.

An input that fails is tried again on models that were loaded for it, as whoever pastes the call
does, and made smaller there. What fails only behind the inputs before it is reported with these.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import hypothesis
from hypothesis.strategies import SearchStrategy

from core.errors import UnsupportedOptionError
from core_conformance.checking import record
from core_conformance.checking.budget import passes
from core_conformance.checking.check import Violation
from core_conformance.checking.subject import Subject
from core_conformance.checking.world import World

Input = TypeVar("Input")
Run = Callable[[World, Any], None]

_MOST = 5000  # always the same: a seed shall give the same inputs however many there is time for
_SHRINKING = 10.0  # seconds; a deep run takes ten times as long
_AGAIN = 2  # runs of the smallest input, to say whether it fails every time


class Enough(BaseException):
    """The search is over. No ``except Exception`` takes it."""


def search(
    subject: Subject,
    inputs: SearchStrategy[Input],
    run: Run,
    cost: Callable[[Input], float],
    most: int = 60,
) -> None:
    """Run ``run`` on generated inputs; raises the `Violation` of the smallest that fails.

    ``cost`` is the number of passes that an input takes, and ``most`` the number of inputs that
    are enough, unless the run is deep.
    """
    with contextlib.closing(_Search(subject, run, cost, most)) as found:
        _drive(inputs, subject.effort.seed, subject.effort.deep, found)
        error = found.failure()
    if error is not None:
        raise error


class _Search(Generic[Input]):
    """What one search has seen so far."""

    def __init__(self, subject: Subject, run: Run, cost: Callable[[Input], float], most: int):
        self._subject, self._run, self._cost = subject, run, cost
        self._world = World(subject)
        effort = subject.effort
        self._passes, self._most = float(passes(subject)), most
        self._end = time.monotonic() + effort.seconds if effort.deep else None
        self._tried = 0
        self._smallest: tuple[Input, BaseException, str] | None = None
        self._alone = True
        self._number = 0

    def __call__(self, found: Input) -> None:
        """Try one input."""
        if self._over():
            raise Enough
        self._tried += 1
        self._passes -= self._cost(found)
        if self._smallest is not None:
            self._world.renew()
        error = self._error(found)
        if error is None:
            return
        if self._smallest is None:
            self._first(found, error)
        elif len(script := record.script(whole=True)) < len(self._smallest[2]):
            self._smallest = found, error, script
        raise error

    @property
    def failed(self) -> bool:
        """Whether an input has failed."""
        return self._smallest is not None

    def failure(self) -> BaseException | None:
        """The error of the smallest input that failed, with its call; None if all passed."""
        if self._smallest is None:
            return None
        found, error, script = self._smallest
        if isinstance(error, UnsupportedOptionError):
            return error  # whether it may be refused is for the runner to say
        where = f"generated input {self._number} of --seed {self._subject.effort.seed}"
        where += f", {self._said(found)}"
        told = str(error) if isinstance(error, Violation) else f"raised {error!r}"
        violation = Violation(f"{told} [{where}]", script)
        if not isinstance(error, Violation):
            violation.__context__ = error
        return violation

    def close(self) -> None:
        """Close the models of the search."""
        self._world.close()

    def _over(self) -> bool:
        if self._end is not None:
            return time.monotonic() > self._end
        if self._smallest is not None:
            return False
        return self._tried >= self._most or self._passes <= 0

    def _error(self, found: Input) -> BaseException | None:
        record.begin()
        try:
            self._run(self._world, found)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is found
            return error
        return None

    def _first(self, found: Input, error: BaseException) -> None:
        """Keep the first input that fails, and see whether it does on models of its own."""
        self._number = self._tried
        self._smallest = found, error, record.script(str(error))
        self._world.renew(whole=True)
        own = self._error(found)
        self._alone = own is not None
        if own is None:
            raise Enough
        self._smallest = found, own, record.script(whole=True)
        self._end = time.monotonic() + _SHRINKING * (10 if self._subject.effort.deep else 1)

    def _said(self, found: Input) -> str:
        if not self._alone:
            return "which fails behind those before it and passes on models loaded anew"
        failed = 0
        for _ in range(_AGAIN):
            self._world.renew(whole=True)
            failed += self._error(found) is not None
        return f"which failed again in {failed} of {_AGAIN} more runs"


def _drive(inputs: SearchStrategy[Any], seed: int, deep: bool, found: _Search[Any]) -> None:
    """Have hypothesis generate inputs and shrink the one that fails.

    What it raises is dropped, for the search has seen all there was: also that an input failed
    once and not again, which is no error of the suite.
    """
    while True:
        try:
            with _apart():
                _given(inputs, seed)(found)
        except Enough:
            return
        except (Exception, BaseExceptionGroup):
            if found.failed:
                return
            raise
        if not deep:
            return
        seed += 1


def _given(inputs: SearchStrategy[Any], seed: int) -> Callable[[_Search[Any]], None]:
    settings = hypothesis.settings(
        max_examples=_MOST,
        database=None,  # nothing is written in the user's folder
        deadline=None,
        derandomize=False,  # the seed is ours
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )

    def run(found: _Search[Any]) -> None:
        @hypothesis.seed(seed)
        @settings
        @hypothesis.given(inputs)
        def one(generated: Any) -> None:
            found(generated)

        one()

    return run


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Keep hypothesis from drawing the constants that it finds in whatever modules are imported.

    They would make another sequence of one seed everywhere, and it keeps them in a folder.
    """
    from hypothesis.internal.conjecture import providers

    kept = {
        name: getattr(providers, name)
        for name in ("_get_local_constants", "CONSTANTS_CACHE")
        if hasattr(providers, name)
    }
    if len(kept) < 2:  # another version of hypothesis
        yield
        return
    none = type(providers._local_constants)()
    try:
        providers._get_local_constants = lambda: none
        providers.CONSTANTS_CACHE = type(providers.CONSTANTS_CACHE)(1024)
        yield
    finally:
        for name, value in kept.items():
            setattr(providers, name, value)
