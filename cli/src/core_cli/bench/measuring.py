"""Interleaved measurements: each contestant runs once per round, after warm-up rounds."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import CoreError
from core_cli.bench.cases import Case, Clock, Contestant, Sample
from core_cli.bench.prompts import Prompts


@dataclass(frozen=True, slots=True)
class Measurement:
    """A contestant's samples of one case, or the reason for their absence (``note``).

    ``note`` may also state a limitation, such as samples shorter than requested.
    """

    contestant: str
    backend: str
    case: Case
    samples: tuple[Sample, ...] = ()
    note: str = ""
    peak_memory: int = 0
    load_seconds: float = 0.0

    @property
    def rates(self) -> list[float]:
        """Tokens or prompts a second, of each sample; of ``ttft`` the seconds."""
        if self.case.kind == "ttft":
            return [sample.seconds for sample in self.samples]
        return [s.count / s.seconds if s.seconds else math.inf for s in self.samples]

    @property
    def mean(self) -> float | None:
        """The mean of the rates, as llama-bench's ``avg_ts``."""
        return statistics.fmean(self.rates) if self.samples else None

    @property
    def spread(self) -> float | None:
        """Their standard deviation, as llama-bench's ``stddev_ts``: 0 of a single one."""
        if not self.samples:
            return None
        return statistics.stdev(self.rates) if len(self.samples) > 1 else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the measurement for JSON, with llama-bench's names if they exist."""
        nanoseconds = [round(1e9 * sample.seconds) for sample in self.samples]
        timed = self.case.kind == "ttft"
        return {
            "model_filename": self.contestant,
            "backend": self.backend,
            "test": self.case.name,
            "n_prompt": self.case.prompt,
            "n_gen": self.case.generated,
            "n_rows": self.case.rows,
            "unit": self.case.unit,
            "avg_ns": round(statistics.fmean(nanoseconds)) if nanoseconds else None,
            "stddev_ns": round(_deviation(nanoseconds)) if nanoseconds else None,
            "avg_ts": None if timed else self.mean,
            "stddev_ts": None if timed else self.spread,
            "samples_ns": nanoseconds,
            "samples_ts": [] if timed else self.rates,
            "peak_memory_bytes": self.peak_memory,
            "load_seconds": self.load_seconds,
            "note": self.note,
        }


def measured(
    contestants: Sequence[Contestant],
    cases: Sequence[Case],
    *,
    repetitions: int = 5,
    warmup: int = 1,
    clock: Clock = time.perf_counter,
    begun: Callable[[str], None] = lambda name: None,
) -> Iterator[list[Measurement]]:
    """Measure case after case, and in each the contestants in turns; their measurements by case.

    Each run has prompts of its own, so that nothing which was kept answers for the machine.
    ``begun`` hears the name of each case.
    """
    for number, case in enumerate(cases):
        begun(case.name)
        runs = [_Turns(each, case, seed=1000 * number) for each in contestants]
        for _ in range(warmup):
            for run in runs:
                run.once(clock)
        for run in runs:
            run.samples.clear()
        for _ in range(repetitions):
            for run in runs:
                run.once(clock)
        yield [run.measurement() for run in runs]


class _Turns:
    """One contestant in one case."""

    def __init__(self, contestant: Contestant, case: Case, seed: int) -> None:
        self._contestant, self._case = contestant, case
        self._prompts = Prompts(contestant.model, seed)
        self.samples: list[Sample] = []
        self._failed = "" if contestant.offers(case) else "not offered"
        self._peak = 0

    def once(self, clock: Clock) -> None:
        """Measure again, unless it failed before."""
        if self._failed:
            return
        try:
            self.samples.append(self._contestant.sample(self._case, self._prompts, clock))
        except CoreError as error:
            self._failed = str(error)
        self._peak = max(self._peak, self._contestant.metrics.peak_memory_bytes)

    def measurement(self) -> Measurement:
        case, who = self._case, self._contestant
        samples = () if self._failed else tuple(self.samples)
        note = self._failed or self._note()
        return Measurement(who.name, who.backend, case, samples, note, self._peak, who.load_seconds)

    def _note(self) -> str:
        if not self._prompts.exact:
            return "words, not tokens"
        wanted = self._case.generated * self._case.rows
        made = min((sample.count for sample in self.samples), default=wanted)
        if wanted and made < wanted:
            return f"ended after {made} of {wanted} tokens"
        return ""


def _deviation(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0
