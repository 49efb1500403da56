"""Run saboteurs and record what they fail: ``python -m core_conformance.proof.kills --write``.

All narrow checks are run on each saboteur. Broad ones, which take most of the time, run where they
are recorded already, where no narrow check fails, or where both are named. With a poor model, the
checks that are not testable are recorded.
"""

from __future__ import annotations

import argparse
import difflib
import multiprocessing
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import click

from core_conformance.checking.check import all_checks
from core_conformance.proof import record, selftest
from core_conformance.proof.poor_models import POOR_MODELS
from core_conformance.proof.record import Kills, recorded
from core_conformance.proof.registry import all_saboteurs
from core_conformance.reference import write_model

T = TypeVar("T")
_RUNS = 3


@contextmanager
def side_by_side(
    work: Callable[[str], T], names: Iterable[str], jobs: int = 0
) -> Iterator[Mapping[str, Future[T]]]:
    """Do the work for each name, in processes; gives the future result of each."""
    fresh = multiprocessing.get_context("spawn")  # threads of the caller are not forked along
    # Half of a run is waiting for what a sound backend would not do.
    workers = jobs or 2 * (os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, mp_context=fresh) as pool:
        yield {name: pool.submit(work, name) for name in names}
        pool.shutdown(cancel_futures=True)  # the caller may not want all of them


def observed(
    name: str, path: str, only: Collection[str] = (), runs: int = _RUNS, all_broad: bool = True
) -> Kills:
    """Run checks, ``only`` these if there are any; return the record of the subject with them.

    Without ``all_broad``, broad ones among these run only where they are worth their time.
    """
    before, checks = recorded().get(name, Kills()), all_checks()
    for poor in POOR_MODELS:
        if poor.name == name:
            results = selftest.outcomes(poor, path, [checks[id] for id in only or checks])
            return before.updated(Kills(frozenset(selftest.mute(results))), only or checks)
    broken = all_saboteurs()[name]

    def after(chosen: Collection[str]) -> Kills:
        ordered = [check for id, check in checks.items() if id in chosen]
        counts: Counter[str] = Counter()
        for _ in range(runs):
            counts.update(selftest.failures(broken.backend(), path, ordered).keys())
        failed = (counts.keys() & checks) - broken.refuses()  # the others were not testable
        always = frozenset(id for id in failed if counts[id] == runs)
        return before.updated(Kills(always, frozenset(failed) - always), chosen)

    narrow = {id for id, check in checks.items() if not check.broad} | before.all
    if only:
        fails_narrow = bool({id for id in before.always & checks.keys() if not checks[id].broad})
        return after(narrow.intersection(only) if fails_narrow and not all_broad else only)
    kills = after(narrow)
    return kills if kills.all or broken.undeclared else after(checks)


def main(arguments: Sequence[str]) -> int:
    """Run saboteurs, and print or write what differs from the record. Returns 1 if it stays so."""
    parser = argparse.ArgumentParser(description="Which checks does each saboteur fail?")
    parser.add_argument(
        "names", nargs="*", help="saboteurs or poor models [default: all]", metavar="NAME"
    )
    parser.add_argument("--check", action="append", help="run this check only; repeatable")
    parser.add_argument("--write", action="store_true", help=f"write {record.FILE.name}")
    parser.add_argument("--runs", type=int, default=_RUNS, help="of each pair [default: 3]")
    parser.add_argument("--jobs", type=int, default=0, help="processes [default: 2 for each core]")
    options = parser.parse_args(arguments)
    names, only = options.names or record.subjects(), options.check or []
    if unknown := {*names} - {*record.subjects()} | {*only} - all_checks().keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}")

    kills = record.known(recorded())
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as folder:
        path = str(write_model(folder))
        work = partial(
            observed, path=path, only=only, runs=options.runs, all_broad=bool(options.names)
        )
        with side_by_side(work, names, options.jobs) as futures:
            for name, future in futures.items():
                kills[name] = future.result()
                click.echo(name, err=True)
    before, after = record.FILE.read_text("utf-8"), record.written(kills)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    click.echo("\n".join(line for line in lines if line[:2] not in ("--", "++", "@@")))
    if options.write:
        record.FILE.write_text(after, encoding="utf-8")
    return 0 if options.write or before == after else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
