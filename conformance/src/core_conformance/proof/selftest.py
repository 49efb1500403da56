"""Proof that the suite bites: sound backends pass it, and every broken one fails what it must."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from core.protocols import Backend, Capability
from core_conformance.checking.check import Check, all_checks
from core_conformance.checking.subject import Effort, Subject
from core_conformance.proof import null_backend
from core_conformance.proof.poor_models import POOR_MODELS, PoorModel
from core_conformance.proof.record import Kills, expected, recorded, subjects
from core_conformance.proof.registry import Saboteur, all_saboteurs
from core_conformance.reference import Reference, Sentences, write_model
from core_conformance.running.result import Result, Status
from core_conformance.running.runner import NOTHING, run_check
from core_conformance.running.target import know_reference

Progress = Callable[[str], None]
_TRIES = 3
_PATIENT = Effort(seconds=16.0)  # a busy machine shall not decide what a check has the time to see


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of the self-test: one line for each problem; without any, the suite is sound."""

    checks: int
    saboteurs: int
    problems: tuple[str, ...]
    seconds: float

    @property
    def sound(self) -> bool:
        """True when a verdict of this suite can be trusted."""
        return not self.problems

    def __str__(self) -> str:
        """Return the result as a few lines for people."""
        if self.sound:
            return (
                f"The suite is sound: the reference passes all {self.checks} checks, whole and "
                f"with each capability off, and {self.saboteurs} saboteurs fail what they must "
                f"({self.seconds:.0f} s)."
            )
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        return f"The suite is not sound, {len(self.problems)} problems:{lines}"


def run(progress: Progress = lambda line: None) -> Summary:
    """Test the suite on the reference, the saboteurs, the empty backend and poor models.

    With a capability switched off, only the checks that need it run, and with a saboteur only the
    checks that it must fail. That it fails no other is for `kill_matrix`, which takes minutes.
    """
    start = time.monotonic()
    problems: list[str] = []
    with tempfile.TemporaryDirectory(prefix="core-conformance-") as folder:
        path = str(write_model(folder))
        for title, test in _parts():
            progress(title)
            problems += test(path)
    seconds = time.monotonic() - start
    return Summary(len(all_checks()), len(all_saboteurs()), tuple(problems), seconds)


def count() -> int:
    """Return the number of steps of `run`."""
    return sum(1 for _ in _parts())


def _parts() -> Iterator[tuple[str, Callable[[str], Iterable[str]]]]:
    yield "saboteurs for all checks", lambda path: without_saboteur()
    yield "the reference", partial(sound, Reference())
    yield "the reference of label sentences", partial(sound, Sentences())
    for capability in Capability:
        yield f"the reference without {capability}", partial(refusing, capability)
    for broken in all_saboteurs().values():
        yield f"saboteur {broken.name}", partial(survivors, broken)
    yield "the empty backend", emptiness
    for poor in POOR_MODELS:
        yield f"a model that {poor.lacks}", partial(silences, poor)


def without_saboteur() -> list[str]:
    """Return the checks that no saboteur fails, and what is wrong with the record of kills."""
    kills, names, ids = recorded(), all_saboteurs(), all_checks()
    proven = {check for name in kills.keys() & names for check in kills[name].always}
    stale = {name: kills[name].all - ids.keys() for name in kills}
    return [
        *(f"no saboteur fails {id}" for id in ids if id not in proven),
        *(f"saboteur {name} fails no check" for name, s in names.items() if not expected(s).always),
        *(
            f"{name} is recorded, and is neither saboteur nor model"
            for name in kills.keys() - subjects()
        ),
        *(f"{name} fails {id}, which is no check" for name in stale for id in sorted(stale[name])),
    ]


def sound(backend: Backend, path: str) -> list[str]:
    """Return the checks that a sound backend does not pass."""
    return [f"{id}: a sound backend fails: {why}" for id, why in failures(backend, path).items()]


def refusing(capability: Capability, path: str) -> list[str]:
    """Return the checks needing a capability that the reference fails without it."""
    needing = [check for check in all_checks().values() if capability in check.needs]
    if not needing:
        return [f"no check needs {capability}"] if capability in Reference().capabilities else []
    reasons = failures(Reference(without={capability}), path, needing)
    return [f"{id}: fails without {capability}: {why}" for id, why in reasons.items()]


def survivors(broken: Saboteur, path: str) -> list[str]:
    """Return the checks that pass a saboteur which they must fail."""
    return _unexpected(broken, path, expected(broken).always)


def kill_matrix(broken: Saboteur, path: str) -> list[str]:
    """Return the differences between the checks that a saboteur fails and must fail.

    Broad checks count only where it must fail them: they may find what is another check's clause.
    """
    narrow = {id for id, check in all_checks().items() if not check.broad}
    return _unexpected(broken, path, narrow | expected(broken).all)


def _unexpected(broken: Saboteur, path: str, ids: Set[str]) -> list[str]:
    """Return the differences between these checks' results and the record, if they last.

    Threads and clocks may decide once what a check sees, so that what differs is asked again.
    """
    kills = expected(broken)
    lines: list[str] = []
    for _ in range(_TRIES):
        checks = [check for id, check in all_checks().items() if id in ids]
        reasons = failures(broken.backend(), path, checks)
        failed = {id: why for id, why in reasons.items() if id in ids - kills.sometimes}
        must_fail = kills.always & ids
        lines = differences(failed, must_fail, broken.name)
        if not lines:
            break
        ids = failed.keys() ^ must_fail
    return lines


def exactly(name: str, path: str) -> list[str]:
    """Return the `kill_matrix` of the saboteur of this name."""
    return kill_matrix(all_saboteurs()[name], path)


def emptiness(path: str) -> list[str]:
    """Return the differences between the checks that the empty backend passes and may pass."""
    expected = set(all_checks()) - null_backend.PASSES
    reasons = failures(null_backend.NullBackend(), path)
    failed = {id.partition(" ")[0]: reason for id, reason in reasons.items()}
    return differences(failed, expected, "the empty backend")


def silences(poor: PoorModel, path: str) -> list[str]:
    """Return the differences between the checks not testable with a model and those recorded.

    Every other check has to pass, and not in silence. Broad ones may do as they like, and so long
    as they say why.
    """
    results = outcomes(poor, path, all_checks().values())
    failed = [
        f"{r.id}: fails {poor.name}: {r.reason}" for r in results if r.status is Status.FAILED
    ]
    silent = [
        f"{id}: has no words for {poor.name}" for id, why in mute(results).items() if why == NOTHING
    ]
    recorded_mute = recorded().get(poor.name, Kills()).always
    return (
        failed
        + silent
        + [
            *(
                f"{id}: is not testable with {poor.name}"
                for id in mute(results).keys() - recorded_mute
            ),
            *(
                f"{id}: passes {poor.name} in silence"
                for id in recorded_mute - mute(results).keys()
            ),
        ]
    )


def outcomes(poor: PoorModel, path: str, checks: Iterable[Check]) -> list[Result]:
    """Run checks with a poor model."""
    know_reference()
    with closing(Subject(poor.backend(), path, poor.options, _PATIENT)) as subject:
        return [run_check(check, subject) for check in checks]


def mute(results: Iterable[Result]) -> dict[str, str]:
    """Return the reasons of the checks that were not testable, broad ones left out."""
    return {
        result.id: result.reason
        for result in results
        if result.status is Status.NOT_TESTABLE and not all_checks()[result.id].broad
    }


def differences(reasons: dict[str, str], expected: Collection[str], who: str) -> list[str]:
    """Return one line for each check that failed or passed against expectation."""
    too_many = [f"{id}: fails {who}, unexpected: {reasons[id]}" for id in reasons.keys() - expected]
    too_few = [f"{id}: passes {who}, unexpected" for id in set(expected) - reasons.keys()]
    return sorted(too_many + too_few)


def failures(backend: Backend, path: str, checks: Iterable[Check] | None = None) -> dict[str, str]:
    """Run checks (all of them by default) and return the reasons of those that failed, by id.

    A check that is not testable is also returned, with a mark after its id.
    """
    know_reference()
    reasons = {}

    with closing(Subject(backend, path, effort=_PATIENT)) as subject:
        for check in all_checks().values() if checks is None else checks:
            result = run_check(check, subject)
            if result.status is Status.PASSED:
                continue

            mark = f" ({result.status})" if result.status is Status.NOT_TESTABLE else ""
            reasons[check.id + mark] = result.reason
            subject.close()  # what it left shall not fail the next check as well

    return reasons
