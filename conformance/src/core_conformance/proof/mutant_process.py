"""Processes that ask checks of the reference with other sources: of a mutant, until one fails.

A check notices a mutant when it fails twice in a row, for a busy machine may fail one that looks
at time once. Where none fails, and one is not testable that is so on the reference, the suite does
not certify the mutant either: that is told apart.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from types import ModuleType

from core.protocols import Capability
from core_conformance.checking.check import all_checks
from core_conformance.proof.mutants import Mutant

PACKAGE = "core_conformance.reference"
WITHOUT = "without "
"""Before a capability: all checks that need it, of the reference that does not declare it."""
PATIENCE = 60.0
"""Seconds for the start of a process, and for a check that was not measured."""
_SLOWER = 20.0  # times a check's measured seconds, and `PATIENCE`: what takes longer hangs
_MEMORY = 8 << 30  # bytes of addresses: what grows without an end shall not take the machine
_SURVEY = 1800.0  # seconds for all checks on the reference, on a machine that is very busy


@dataclass(frozen=True, slots=True)
class Passed:
    """A check on the reference itself: its seconds, and each `Mutant.place` that it called."""

    seconds: float
    called: frozenset[str]

    @property
    def limit(self) -> float:
        """Seconds after which the check hangs."""
        return PATIENCE + _SLOWER * self.seconds


def survey(sources: Mapping[str, str], checks: Sequence[str]) -> dict[str, Passed]:
    """Ask checks of the reference with `traced` sources, by module. Raises if one fails."""
    with _process(_survey, sources, checks) as pipe:
        if not pipe.poll(_SURVEY):
            raise TimeoutError(f"The reference took more than {_SURVEY:g} s. Is the machine busy?")
        message = pipe.recv()
    if isinstance(message, str):
        raise RuntimeError(f"The reference itself fails, {message}. Run the self-test first.")
    passed: dict[str, Passed] = message
    return passed


def killer(mutant: Mutant, order: Sequence[str], passed: Mapping[str, Passed]) -> str:
    """Return the check that fails the mutant, or how its process ended; "" for neither."""
    check = ""
    with _process(_first_failure, mutant, list(order)) as pipe:
        while pipe.poll(passed[check].limit if check in passed else PATIENCE):
            try:
                asks, message = pipe.recv()
            except EOFError:
                return "(ends the process)"
            if not asks:
                return str(message)
            check = message
    return f"(hangs in {check or 'its start'})"


@contextmanager
def _process(work: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run ``work(pipe, ...)`` in a process; gives the other end of its pipe, and ends it then."""
    here, there = _context().Pipe()
    process = _context().Process(target=_alone, args=(work, there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        _end(process.pid)
        process.join()
        here.close()


@cache
def _context() -> ForkServerContext:
    """Processes are forked from one that has read all checks, and nothing of the reference."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        sorted({check.run.__module__ for check in all_checks().values()})
    )
    return context


def _alone(work: Callable[..., None], pipe: Connection, *arguments: object) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as it lives
    work(pipe, *arguments)
    os._exit(0)


def _end(pid: int | None) -> None:
    """End a process and all that it started, whatever state it is in."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid or 0, signal.SIGKILL)
        except OSError:
            continue
        return


def _first_failure(pipe: Connection, mutant: Mutant, order: Sequence[str]) -> None:
    """In the child: put the mutant in its module's place, and ask the checks until one fails."""
    sys.meta_path.insert(0, _Finder({mutant.module: mutant.source}))
    mute = ""
    try:
        with _asking() as failing:
            for check in order:
                pipe.send((True, check))
                failed = failing(check)
                if check in failed and check in failing(check):
                    pipe.send((False, check))
                    return
                mute = mute or next((id for id in failed if id != check), "")
        pipe.send((False, mute))
    except BaseException as error:  # noqa: BLE001 - a mutant that cannot be imported is noticed
        pipe.send((False, f"({type(error).__name__})"))


def _survey(pipe: Connection, sources: Mapping[str, str], checks: Sequence[str]) -> None:
    """In the child: ask the checks, and note what each one calls."""
    called: set[str] = set()
    finder = _Finder(sources, called)
    sys.meta_path.insert(0, finder)
    survivals: dict[str, Passed] = {}
    with _asking() as failing:
        always = frozenset(called)  # by imports, say, where a fault reaches every check
        for check in checks:
            finder.forget()
            begun = time.monotonic()
            if failing(check):
                pipe.send(check)
                return
            survivals[check] = Passed(time.monotonic() - begun, always | called)
    pipe.send(survivals)


@contextmanager
def _asking() -> Iterator[Callable[[str], Collection[str]]]:
    """Make a model of the reference; gives what asks a check.

    That returns the check's id where it fails, and this with a mark where it is not testable.
    """
    selftest = import_module("core_conformance.proof.selftest")
    reference = import_module(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as folder:
        path = str(reference.write_model(folder))

        def failing(check: str) -> Collection[str]:
            if check.startswith(WITHOUT):
                refused = selftest.refusing(Capability(check.removeprefix(WITHOUT)), path)
                return {check} if refused else ()
            reasons: dict[str, str] = selftest.failures(
                reference.Reference(), path, [all_checks()[check]]
            )
            return reasons

        yield failing


class _Finder(MetaPathFinder, Loader):
    """Finds modules of the reference with other sources; ``called`` is a global of each."""

    def __init__(self, sources: Mapping[str, str], called: set[str] | None = None) -> None:
        self._sources = {f"{PACKAGE}.{module}": source for module, source in sources.items()}
        self._called = set() if called is None else called
        self._modules: list[ModuleType] = []

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name in self._sources else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["called"] = self._called
        self._modules.append(module)
        exec(compile(self._sources[module.__name__], module.__name__, "exec"), module.__dict__)

    def forget(self) -> None:
        """Forget what was called, and all answers that are kept, which spare later calls."""
        self._called.clear()
        for module in self._modules:
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
