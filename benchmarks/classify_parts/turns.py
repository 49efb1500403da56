"""Contestants in interleaved runs: each in a separate process, and only one at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self

from benchmarks.classify_parts.runner import Spec
from benchmarks.line_process import LineProcess, UnavailableError

Run = dict[str, Any]  # worker.measure's reply
Say = Callable[[str], None]


class Worker:
    """The parent's end of a contestant's process. Raises `UnavailableError` when it cannot run."""

    def __init__(self, spec: Spec, environment: Mapping[str, str]) -> None:
        self.spec, self.about = spec, ""
        added = {**environment, **spec.environment}
        self._process = LineProcess(spec.python, "benchmarks.classify_parts.worker", spec, added)

    def ready(self) -> Self:
        """Wait until it has loaded."""
        self.about = self._process.answer()["about"]
        return self

    def warm_up(self, prompts: Sequence[str]) -> None:
        """Do the one-time work, apart from the runs."""
        self.about = self._ask(prompts, warm_up=True)["about"]

    def measure(self, prompts: Sequence[str], call: int = 0) -> Run:
        """Make one run, of calls of ``call`` prompts each, or of one call of all of them."""
        if self.spec.library == "matmul":
            call = 0  # it reads no prompts, and measures a rate in each call
        return self._ask(prompts, warm_up=False, call=call)

    def close(self) -> None:
        """End the process; it may be in the middle of something."""
        self._process.close()

    def _ask(self, prompts: Sequence[str], warm_up: bool, call: int = 0) -> Run:
        return self._process.ask({"prompts": list(prompts), "warm_up": warm_up, "call": call})


class Turns:
    """Workers for one workload. One that fails drops out; ``skipped`` has the reason."""

    def __init__(self, specs: Sequence[Spec], environment: Mapping[str, str], say: Say) -> None:
        self._specs, self._environment, self._say = specs, environment, say
        self.skipped: dict[str, str] = {}
        self.about: dict[str, str] = {}

    def take(self, prompts: Sequence[str], runs: int, call: int = 0) -> dict[str, list[Run]]:
        """Return ``runs`` interleaved runs of each by its name, after a warm-up of each.

        Each run is made of calls of ``call`` prompts, or of one call of all of them.
        """
        runs_of: dict[str, list[Run]] = {spec.name: [] for spec in self._specs}
        with ExitStack() as stack:
            workers = [w for w in (self._started(spec, stack) for spec in self._specs) if w]
            for number in range(runs + 1):
                # Another one begins each round, so that none always follows the same one.
                first = number % max(1, len(workers))
                for worker in workers[first:] + workers[:first]:
                    self._turn(worker, prompts, call, number, runs_of)
        return {name: done for name, done in runs_of.items() if len(done) == runs}

    def _started(self, spec: Spec, stack: ExitStack) -> Worker | None:
        try:
            worker = Worker(spec, self._environment)
            stack.callback(worker.close)
            return worker.ready()
        except UnavailableError as error:
            self._skip(spec.name, error)
            return None

    def _turn(
        self,
        worker: Worker,
        prompts: Sequence[str],
        call: int,
        number: int,
        runs_of: dict[str, list[Run]],
    ) -> None:
        name = worker.spec.name
        if name in self.skipped:
            return
        try:
            if number == 0:
                worker.warm_up(prompts)
                self.about[name] = worker.about
                return
            run = worker.measure(prompts, call)
        except UnavailableError as error:
            self._skip(name, error)
            return
        runs_of[name].append(run)
        self._say(f"  run {number}: {name} {run['seconds']:.2f} s")

    def _skip(self, name: str, error: Exception) -> None:
        self.skipped[name] = str(error)
        self._say(f"  skipped: {name}: {error}")
