"""Mutation of the reference: ``python -m core_conformance.proof.mutation --report FILE``.

Each mutant runs in a process of its own, against all checks until one fails. One that no check
fails is alive: the suite would certify a backend with that fault. Those that are equivalent, so
that nobody could see a difference, are listed with a line of proof each in
``equivalent_mutants.toml``.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import click

from core_conformance.checking.registry import all_checks
from core_conformance.proof.mutants import Mutant, mutants

PACKAGE = "core_conformance.reference"
LIMIT = 60.0
"""Seconds for all checks on one mutant: what takes longer hangs, and is noticed by that."""
_LISTED = Path(__file__).with_name("equivalent_mutants.toml")


@dataclass(slots=True)
class Outcome:
    """What became of all mutants; ``killed`` says by which check. Lists are of names."""

    killed: dict[str, str] = field(default_factory=dict)
    equivalent: dict[str, str] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the mutants that are not equivalent which some check noticed."""
        told = len(self.killed) + len(self.alive)
        return len(self.killed) / told if told else 0.0

    def __str__(self) -> str:
        by = Counter(self.killed.values()).most_common()
        total = len(self.killed) + len(self.equivalent) + len(self.alive)
        lines = [
            f"{total} mutants: {len(self.killed)} killed, {len(self.equivalent)} equivalent, "
            f"{len(self.alive)} alive; without the equivalent ones {self.share:.1%} are killed",
            *(f"alive       {name}" for name in self.alive),
            *(f"equivalent  {name}: {why}" for name, why in self.equivalent.items()),
            *(f"listed, and no mutant or killed: {name}" for name in self.stale),
            "killed first by: " + ", ".join(f"{check} {count}" for check, count in by),
        ]
        return "\n".join(lines)


@cache
def all_mutants() -> Sequence[Mutant]:
    """Every mutant of the reference, module by module."""
    (folder,) = import_module(PACKAGE).__path__
    files = sorted(Path(folder).glob("*.py"))
    return [each for file in files for each in mutants(file.stem, file.read_text(encoding="utf-8"))]


def listed() -> dict[str, str]:
    """The mutants that are known to be equivalent, with the proof of each."""
    table: dict[str, str] = tomllib.loads(_LISTED.read_text("utf-8"))
    return table


def outcome_of(
    found: Sequence[Mutant], jobs: int, progress: Callable[[str], None] = lambda line: None
) -> Outcome:
    """Run every mutant. Checks that killed others before are asked first."""
    outcome, known, kills = Outcome(), listed(), Counter[str]()

    def judge(mutant: Mutant) -> str:
        order = sorted(all_checks(), key=lambda check: -kills[check])
        killer = _killer(mutant, order)
        kills[killer] += 1
        return killer

    with ThreadPoolExecutor(jobs) as pool:
        for mutant, killer in zip(found, pool.map(judge, found), strict=True):
            progress(f"{killer or 'alive'}  {mutant.name}")
            if killer:
                outcome.killed[mutant.name] = killer
            elif mutant.name in known:
                outcome.equivalent[mutant.name] = known[mutant.name]
            else:
                outcome.alive.append(mutant.name)

    asked = {mutant.module for mutant in found}
    outcome.stale = [
        name for name in known if name.partition(":")[0] in asked and name not in outcome.equivalent
    ]
    return outcome


def _killer(mutant: Mutant, order: Sequence[str]) -> str:
    """The check that fails the mutant, or how its process ended; "" for neither."""
    context = multiprocessing.get_context("spawn")  # threads of this process are not forked along
    here, there = context.Pipe()
    process = context.Process(target=_run, args=(mutant, list(order), there), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(LIMIT):
            return "(hangs)"
        return str(here.recv())
    except EOFError:
        return "(ends the process)"
    finally:
        _end(process.pid)
        process.join()
        here.close()


def _end(pid: int | None) -> None:
    """End a process and all that it started, whatever state it is in."""
    for kill in (os.killpg, os.kill):
        try:
            kill(pid or 0, signal.SIGKILL)
        except OSError:
            continue
        return


def _run(mutant: Mutant, order: Sequence[str], pipe: Connection) -> None:
    """In the child: put the mutant in its module's place, and ask the checks until one fails."""
    os.setsid()
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for as long as it lives
    sys.meta_path.insert(0, _Finder(mutant))
    try:
        pipe.send(_first_failure(order))
    except BaseException as error:  # noqa: BLE001 - a mutant that cannot be imported is noticed
        pipe.send(f"({type(error).__name__})")
    os._exit(0)


def _first_failure(order: Sequence[str]) -> str:
    selftest = import_module("core_conformance.proof.selftest")
    reference = import_module(PACKAGE)
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as folder:
        path = str(reference.write_model(folder))
        for check_id in order:
            if selftest.failures(reference.Reference(), path, [all_checks()[check_id]]):
                return check_id
    return ""


class _Finder(MetaPathFinder, Loader):
    """Finds one module of the reference as its mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._name, self._source = f"{PACKAGE}.{mutant.module}", mutant.source

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, module.__name__, "exec"), module.__dict__)


def main(arguments: Sequence[str]) -> int:
    """Run all mutants, or some, and report. Returns 1 unless 95 % are killed."""
    parser = argparse.ArgumentParser(description="Do the checks notice faults of the reference?")
    parser.add_argument("--modules", nargs="+", help="of these modules only: sampling, stream ...")
    parser.add_argument("--sample", type=int, help="so many, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for --sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path, help="also write the outcome to this file")
    asked = parser.parse_args(arguments)

    found = [m for m in all_mutants() if not asked.modules or m.module in asked.modules]
    if asked.sample:
        found = random.Random(asked.seed).sample(found, min(asked.sample, len(found)))
    outcome = outcome_of(found, asked.jobs, lambda line: click.echo(line, err=True))
    click.echo(str(outcome))
    if asked.report:
        asked.report.write_text(f"{outcome}\n", encoding="utf-8")
    return 0 if outcome.share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
