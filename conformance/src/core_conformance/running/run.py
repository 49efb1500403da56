"""A run of the checks that apply to a backend, with their results and the verdict."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import replace

from core.errors import CoreError
from core.kit.support import CLASSIFYING
from core.models.files import is_address, typed_errors
from core.protocols import Capability
from core_conformance.checking.check import Check, all_checks, generated
from core_conformance.checking.material import use
from core_conformance.checking.subject import OPERATIONS
from core_conformance.running.chosen import chosen
from core_conformance.running.continuing import Continuing
from core_conformance.running.isolation import Isolated
from core_conformance.running.known import UsageError, judged, validated
from core_conformance.running.result import Result, Status, Verdict, verdict_of
from core_conformance.running.runner import Runner
from core_conformance.running.settings import Settings
from core_conformance.running.target import applicable

_CLASSIFYING = CLASSIFYING | {Capability.LABEL_SENTENCES}
_OF_CLASSIFY = {Capability.LABELS, Capability.LOGITS}


class Run:
    """Every check that applies to a backend, run one by one.

    Raises at once `UsageError` for settings that cannot be used, `BackendError` for a backend
    that is not found, and `ModelNotFoundError` or `ModelAccessError` for a path of no model.
    """

    def __init__(self, settings: Settings) -> None:
        try:
            use(settings.material)  # before anything imports the checks
        except ValueError as error:
            raise UsageError(str(error)) from error

        self.target = settings.target()
        self.backend = self.target.found()
        if not is_address(self.target.model):
            with typed_errors(self.target.model):
                os.stat(self.target.model)

        all_that_apply = applicable(self.backend.protocol)
        self.checks = chosen(all_that_apply, settings.only)
        self.total = len(all_that_apply)
        self.results: dict[str, Result] = {}
        self.started = False
        self._no_start = ""
        self._known = validated(settings.known or {}, all_checks())

        self.isolated = bool(settings.isolate)
        runner = Isolated if self.isolated else Continuing
        self._runner: Runner = runner(self.target, settings.timeout)

    @property
    def ended(self) -> str:
        """The reason why no further check runs; empty while they do."""
        return self._no_start or self._runner.ended

    @property
    def hangs(self) -> bool:
        """True when something of the backend may still run, and would keep Python from ending."""
        return self._runner.hangs

    def start(self) -> None:
        """Load the model. Raises `CoreError` when nothing can run."""
        self.started = True
        try:
            self._runner.start()
        except CoreError:
            self._no_start = "the model does not load"
            raise

    def run(self, check: Check) -> Result:
        """Run one check and keep its result."""
        if self.ended:
            return Result(check.id, Status.NOT_RUN, self.ended)
        result = judged(self._runner.run(check), self._known)
        if result.status is not Status.NOT_RUN:
            self.results[check.id] = result
        return result

    def further(self) -> Iterator[Result]:
        """Repeat the generated checks with other inputs, as long as one passes."""
        left = [check for check in generated() if check in self.checks]
        for seed in itertools.count(self.target.effort.seed + 1):
            left = [check for check in left if self._passed(check)]
            if self.ended or not left:
                return
            self._runner.go(replace(self.target.effort, seed=seed))
            yield from map(self.run, left)

    def stop(self) -> None:
        """Close what the run opened."""
        self._runner.stop()

    def all_results(self) -> list[Result]:
        """Return the result of each check that applies, by id, those that were not run included."""
        missing = Status.NOT_RUN
        return [
            self.results.get(check.id) or Result(check.id, missing, self.ended)
            for check in self.checks
        ]

    @property
    def partial(self) -> bool:
        """True if only some of the checks were selected: then the verdict is incomplete at best."""
        return len(self.checks) < self.total

    @property
    def capabilities(self) -> frozenset[Capability]:
        """The capabilities that the backend declares, without those that its model refused."""
        refused = {result.refused for result in self.results.values()}
        seen = frozenset(
            capability
            for capability in self.backend.capabilities
            if capability.value not in refused
        )
        # No check can see an option refused by an operation that is refused itself.
        return seen if _CLASSIFYING & seen else seen - _OF_CLASSIFY

    def verdict(self) -> Verdict:
        """Return the verdict on the results so far."""
        offers = not self.capabilities.isdisjoint(OPERATIONS)
        verdict = verdict_of([check.id for check in self.checks], self.results, offers)
        if not self.partial or verdict.kind == "not conformant":
            return verdict
        text = f"incomplete ({len(self.checks)} of {self.total} checks were selected)"
        return replace(verdict, kind="incomplete", text=text)

    def good(self) -> bool:
        """Return True if every selected check passed or is a known failure."""
        verdict = self.verdict()
        if not self.partial:
            return verdict.kind == "conformant"
        return verdict.passed + verdict.known == verdict.total

    def flawless(self) -> bool:
        """Return True if every selected check passed: for all checks, a certification."""
        verdict = self.verdict()
        if not self.partial:
            return verdict.certifiable
        return verdict.passed == verdict.total

    def _passed(self, check: Check) -> bool:
        return check.id in self.results and self.results[check.id].status is Status.PASSED

    def refused(self) -> int:
        """Return the number of checks passed because what is not declared was refused."""
        return sum(
            bool(result.refused) and result.status is Status.PASSED
            for result in self.results.values()
        )

    def left_out(self) -> list[str]:
        """Return the cases that checks left out, a line for each check."""
        return [
            f"{result.id}: {'; '.join(result.left_out)}"
            for result in self.all_results()
            if result.left_out
        ]

    def summary(self) -> str:
        """Return the verdict and its grounds, in one line."""
        verdict, refused = self.verdict(), self.refused()
        by_refusal = f", {refused} of them by refusing what is not declared" if refused else ""
        checks = "chosen checks" if self.partial else "checks"
        counts = f"{verdict.passed} of {verdict.total} {checks} passed{by_refusal}"
        return f"{self.target.backend}: {verdict.text}; {counts}"
