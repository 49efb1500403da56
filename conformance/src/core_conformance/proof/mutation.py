"""Mutation of the reference: ``python -m core_conformance.proof.mutation --report FILE``.

Each mutant runs in a process of its own, against all checks until one fails. One that no check
fails is alive: the suite would certify a backend with that fault. Equivalent mutants, which
behave the same in every way, are listed with a line of proof each in
``equivalent_mutants.toml``.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from core.protocols import Capability
from core_conformance.checking.check import all_checks
from core_conformance.proof.mutant_process import PACKAGE, WITHOUT, Passed, killer, survey
from core_conformance.proof.mutants import Mutant, mutants, traced

LEFT_OUT = {
    "sentences": "another backend, which the saboteurs of label sentences break",
    "weights": "the model itself: with other numbers it is another one, and no less sound",
    "writing": "makes the files of a model, which no backend does",
}
"""Modules of the reference that no clause is about, with the reason."""
_LISTED = Path(__file__).with_name("equivalent_mutants.toml")
_ALIVE = "alive"


@dataclass(slots=True)
class Outcome:
    """The outcome of all mutants, by name; ``killed`` maps each to the check that failed."""

    killed: dict[str, str] = field(default_factory=dict)
    equivalent: dict[str, str] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The part of the mutants that are not equivalent which some check noticed."""
        decided = len(self.killed) + len(self.alive)
        return len(self.killed) / decided if decided else 0.0

    def __str__(self) -> str:
        by = Counter(self.killed.values()).most_common()
        total = len(self.killed) + len(self.equivalent) + len(self.alive)
        lines = [
            f"{total} mutants: {len(self.killed)} killed, {len(self.equivalent)} equivalent, "
            f"{len(self.alive)} alive; without the equivalent ones {self.share:.1%} are killed",
            *(f"left out    {module}: {why}" for module, why in LEFT_OUT.items()),
            *(f"alive       {name}" for name in self.alive),
            *(f"equivalent  {name}: {why}" for name, why in self.equivalent.items()),
            *(f"listed, and no mutant or killed: {name}" for name in self.stale),
            "killed first by: " + ", ".join(f"{check} {count}" for check, count in by),
        ]
        return "\n".join(lines)


class Progress:
    """The outcome of each mutant so far, by name, in a file from which an ended run resumes.

    With ``again``, mutants that stayed alive are forgotten, to be run against the checks of now.
    """

    def __init__(self, file: Path | None = None, again: bool = False) -> None:
        self._file, self._lock = file, threading.Lock()
        self.killers: dict[str, str] = {}
        for line in file.read_text("utf-8").splitlines() if file and file.exists() else ():
            killer, _, name = line.partition("\t")
            self.killers[name] = "" if killer == _ALIVE else killer
        if again:
            self.killers = {name: killer for name, killer in self.killers.items() if killer}

    def ended(self, name: str, killer: str) -> None:
        """Note the check that killed a mutant; "" for none."""
        with self._lock:
            self.killers[name] = killer
            line = f"{killer or _ALIVE}\t{name}"
            click.echo(f"{len(self.killers)}  {line}", err=True)
            if self._file:
                with self._file.open("a", encoding="utf-8") as lines:
                    lines.write(f"{line}\n")


@cache
def all_mutants() -> Sequence[Mutant]:
    """Return every mutant of the reference, module by module."""
    return [mutant for module, source in _sources().items() for mutant in mutants(module, source)]


def listed() -> dict[str, str]:
    """Return the mutants that are known to be equivalent, with the proof of each."""
    table: dict[str, str] = tomllib.loads(_LISTED.read_text("utf-8"))
    return table


@cache
def passed() -> Mapping[str, Passed]:
    """Return the time and the calls of each check on the reference itself, on this machine."""
    return survey(traced_sources(), [*all_checks(), *_refusals()])


def _refusals() -> list[str]:
    """Return the refusal checks, one for each capability that a backend may not declare."""
    needed = {need for check in all_checks().values() for need in check.needs}
    return [f"{WITHOUT}{capability}" for capability in Capability if capability in needed]


def traced_sources() -> dict[str, str]:
    """Return the reference, in which all that runs says so."""
    return {module: traced(module, source) for module, source in _sources().items()}


def outcome_of(mutants: Sequence[Mutant], jobs: int, progress: Progress | None = None) -> Outcome:
    """Run every mutant, against the checks that call what it is in; likely killers first."""
    so_far = progress or Progress()
    kills = Counter(so_far.killers.values())

    def worth(check: str) -> float:
        return (kills[check] + 0.1) / (passed()[check].seconds + 0.02)

    def judge(mutant: Mutant) -> None:
        calling = [check for check, seen in passed().items() if mutant.place in seen.called]
        check = killer(mutant, sorted(calling, key=worth, reverse=True), passed())
        kills[check] += 1
        so_far.ended(mutant.name, check)

    left = [mutant for mutant in mutants if mutant.name not in so_far.killers]
    if left:
        passed()
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(judge, left))
    return _outcome(mutants, so_far.killers)


def _outcome(mutants: Sequence[Mutant], killers: Mapping[str, str]) -> Outcome:
    outcome, known = Outcome(), listed()
    for mutant in mutants:
        if killers[mutant.name]:
            outcome.killed[mutant.name] = killers[mutant.name]
        elif mutant.name in known:
            outcome.equivalent[mutant.name] = known[mutant.name]
        else:
            outcome.alive.append(mutant.name)

    modules = {mutant.module for mutant in mutants}
    outcome.stale = [
        name
        for name in known
        if name.partition(":")[0] in modules and name not in outcome.equivalent
    ]
    return outcome


def _sources() -> dict[str, str]:
    """Return the source of each module of the backend, by its name."""
    (folder,) = import_module(PACKAGE).__path__
    files = sorted(Path(folder).glob("[!_]*.py"))
    return {file.stem: file.read_text("utf-8") for file in files if file.stem not in LEFT_OUT}


def main(arguments: Sequence[str]) -> int:
    """Run all mutants, or some, and report. Returns 1 unless 95 % are killed."""
    parser = argparse.ArgumentParser(description="Do the checks notice faults of the reference?")
    parser.add_argument("--modules", nargs="+", help="of these modules only: sampling, stream ...")
    parser.add_argument("--sample", type=int, help="number of mutants, chosen at random")
    parser.add_argument("--seed", type=int, default=0, help="for --sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path, help="also write the outcome to this file")
    parser.add_argument("--progress", type=Path, help="resume the run that this file records")
    parser.add_argument("--again", action="store_true", help="run those once more that were alive")
    options = parser.parse_args(arguments)

    chosen = [m for m in all_mutants() if not options.modules or m.module in options.modules]
    if options.sample:
        chosen = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
    outcome = outcome_of(chosen, options.jobs, Progress(options.progress, options.again))
    click.echo(str(outcome))
    if options.report:
        options.report.write_text(f"{outcome}\n", encoding="utf-8")
    return 0 if outcome.share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
