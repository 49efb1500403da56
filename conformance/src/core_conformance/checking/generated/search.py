"""Searching generated inputs for one that a backend gets wrong, and then for the smallest such.

An input that fails is tried again on models that were loaded for it, as in a pasted call, and
made smaller there. A failure that needs earlier inputs is reported with them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from core.errors import UnsupportedOptionError
from core_conformance.checking.budget import passes
from core_conformance.checking.check import Violation
from core_conformance.checking.generated.lazily import hypothesis
from core_conformance.checking.generated.world import World
from core_conformance.checking.script import record
from core_conformance.checking.subject import Subject

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Input = TypeVar("Input")
Run = Callable[[World, Any], None]

# Inputs of one run of hypothesis: from ten on it tries variations of what it has, and begins with
# small inputs for longer. Where there is time for a few only, they have to differ.
_AT_ONCE = 9
_TRIES = 20  # times the inputs that are enough: if there are fewer, they repeat
# Seconds of shrinking: at least, and at most; between them, time for this many attempts. A deep
# run takes ten times as long.
_SHRINKING, _LONGEST = 2.0, 20.0
_ATTEMPTS = 60
_AGAIN = 2  # runs of the smallest input, to say whether it fails every time


class Enough(BaseException):
    """The search is over. No ``except Exception`` takes it."""


def search(
    subject: Subject,
    inputs: SearchStrategy[Input],
    run: Run,
    cost: Callable[[Input], float],
    most: int = 60,
) -> int:
    """Run ``run`` on generated inputs; raises the `Violation` of the smallest that fails.

    Returns the number of generated tokens that were compared.

    ``cost`` is the number of passes that an input takes, and ``most`` the number of inputs that
    are enough, unless the run is deep.
    """
    with contextlib.closing(_Search(subject, run, cost, most)) as state:
        _drive(inputs, subject.effort.seed, state)
        error = state.failure()
    if error is not None:
        raise error
    return state.tokens


_Found = tuple[Input, BaseException, str]  # an input, its error, and the calls that led to it


class _Search(Generic[Input]):
    """The state of one search."""

    def __init__(self, subject: Subject, run: Run, cost: Callable[[Input], float], most: int):
        self._subject, self._run, self._cost = subject, run, cost
        self._world = World(subject)
        self._passes, self._most = float(passes(subject)), most
        effort = subject.effort
        self._end = time.monotonic() + effort.seconds if effort.deep else math.inf
        self._tried = self._calls = 0
        self._before = set[str]()
        self._after: _Found[Input] | None = None  # fails after the inputs before it, not alone
        self._whole: _Found[Input] | None = None  # fails alone
        self._smallest: _Found[Input] | None = None  # as well, and is small
        self._number = 0

    @property
    def failed(self) -> bool:
        """True if an input has failed alone."""
        return self._smallest is not None

    def __call__(self, generated: Input) -> None:
        """Try one input."""
        if self._over():
            raise Enough

        if self._smallest is None and not self._is_new(generated):
            return
        if self._smallest is not None or self._after is not None:
            self._world.renew()

        error = self._error(generated)
        if error is None:
            return

        # The first failure; from there on, shorter ones.
        if self._smallest is None:
            self._first(generated, error)
            if not self.failed:
                return  # hypothesis would try it alone
        elif len(script := record.script(whole=True)) <= len(self._smallest[2]):
            self._smallest = generated, error, script
        raise error

    @property
    def tokens(self) -> int:
        """The tokens of all answers that were compared."""
        return self._world.tokens

    def failure(self) -> BaseException | None:
        """Return the error of the smallest input that failed, with its call; None if all passed."""
        which = f"generated input {self._number} of --seed {self._subject.effort.seed}"
        if self._smallest is None or self._whole is None:
            return self._after and _told(
                self._after, f"{which}, after the inputs before it: alone it does not fail"
            )
        again = sum(self._fails_again(self._smallest[0]) for _ in range(_AGAIN))
        smallest = self._smallest if again else self._whole
        return _told(smallest, f"{which}: made smaller, it failed in {again} of {_AGAIN} more runs")

    def close(self) -> None:
        """Close the models of the search."""
        self._world.close()

    def _is_new(self, generated: Input) -> bool:
        self._calls += 1
        key = repr(generated)
        if key in self._before:
            return False
        self._before.add(key)
        self._tried += 1
        self._passes -= self._cost(generated)
        return True

    def _over(self) -> bool:
        if time.monotonic() > self._end:
            return True
        if self._smallest is not None or self._subject.effort.deep:
            return False
        enough = self._tried >= self._most or self._calls >= _TRIES * self._most
        return enough or self._passes <= 0

    def _error(self, generated: Input) -> BaseException | None:
        if self._after or self._smallest:  # else the calls of all inputs belong together
            record.begin()
        try:
            self._run(self._world, generated)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is found
            return error
        return None

    def _fails_again(self, generated: Input) -> bool:
        self._world.renew()
        return self._error(generated) is not None

    def _first(self, generated: Input, error: BaseException) -> None:
        """Keep an input that fails, and test it again on separate models.

        Where it does not, the search continues with models that are loaded for each input.
        """
        after = self._after or (generated, error, record.script(whole=True))
        self._number = self._tried
        self._after, start = after, time.monotonic()
        self._world.renew()
        own = self._error(generated)
        if own is not None:
            self._smallest = self._whole = generated, own, record.script(whole=True)
            seconds = max(_SHRINKING, min(_LONGEST, _ATTEMPTS * (time.monotonic() - start)))
            self._end = time.monotonic() + seconds * (10 if self._subject.effort.deep else 1)


def _told(failure: _Found[Any], where: str) -> BaseException:
    """Return the error, with where it occurred and the calls that led to it."""
    _, error, script = failure
    if isinstance(error, UnsupportedOptionError):
        return error  # whether it may be refused is for the runner to say
    reason = str(error) if isinstance(error, Violation) else f"raised {error!r}"
    violation = Violation(f"{reason} [{where}]", script)
    if not isinstance(error, Violation):
        violation.__context__ = error
    return violation


def _drive(inputs: SearchStrategy[Any], seed: int, state: _Search[Any]) -> None:
    """Have hypothesis generate inputs, few at a time, and shrink one that fails.

    Its own errors are dropped, for the search has seen everything: also that an input failed once
    and not again, which is not an error of the suite.
    """
    try:
        with _apart():
            for turn in itertools.count():
                _given(inputs, seed * 2**20 + turn)(state)
    except Enough:
        return
    except (Exception, BaseExceptionGroup):
        if not state.failed:
            raise  # an error of the strategies


def _given(inputs: SearchStrategy[Any], seed: int) -> Callable[[_Search[Any]], None]:
    settings = hypothesis.settings(
        max_examples=_AT_ONCE,
        database=None,  # nothing is written in the user's folder
        deadline=None,
        derandomize=False,  # the seed is ours
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
        suppress_health_check=list(hypothesis.HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
        verbosity=hypothesis.Verbosity.quiet,
    )

    def run(state: _Search[Any]) -> None:
        @hypothesis.seed(seed)
        @settings
        @hypothesis.given(inputs)
        def one(generated: Any) -> None:
            state(generated)

        one()

    return run


@contextlib.contextmanager
def _apart() -> Iterator[None]:
    """Keep hypothesis from drawing the constants that it finds in whatever modules are imported.

    They would make another sequence of one seed everywhere, and it keeps them in a folder.
    """
    from hypothesis.internal.conjecture import providers

    saved = {
        name: getattr(providers, name)
        for name in ("_get_local_constants", "CONSTANTS_CACHE")
        if hasattr(providers, name)
    }
    if len(saved) < 2:  # another version of hypothesis
        yield
        return
    none = type(providers._local_constants)()
    try:
        providers._get_local_constants = lambda: none
        providers.CONSTANTS_CACHE = type(providers.CONSTANTS_CACHE)(1024)
        yield
    finally:
        for name, value in saved.items():
            setattr(providers, name, value)
