"""The summary of all rows: labels, margins, failures, savings; printed and reported."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from core_cli import output
from core_cli.jobs.doubts import Doubts, percent
from core_cli.jobs.many_gold import labels_in
from core_cli.rows.bulk import Cost
from core_cli.writing.records import shown

if TYPE_CHECKING:
    from core_cli.reading.row import Row
    from core_cli.writing.answers import Answer

_SHOWN = 20


class Marks(Protocol):
    """A comparison of answers with the correct ones; ``key`` is its name in a report."""

    @property
    def key(self) -> str: ...

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count the answers to these rows."""
        ...

    def tell(self) -> None:
        """Print the result on stderr."""
        ...

    def to_dict(self) -> dict[str, object]:
        """Return the result for a report."""
        ...


class Summary:
    """Counts of the answers, including those of earlier runs of the job."""

    def __init__(
        self,
        labels: Sequence[str] = (),
        gold: Marks | None = None,
        mending: str | None = None,
    ) -> None:
        self.rows = 0
        self.gold = gold
        self.failures: Counter[str] = Counter()
        self.counts: Counter[str] = Counter(dict.fromkeys(labels, 0))
        self.doubts = Doubts()
        self._mending = mending
        self.cost = Cost()
        self.seconds = 0.0
        self._margins: defaultdict[str, float] = defaultdict(float)
        self._start = time.perf_counter()

    def add(self, rows: Sequence[Row], answers: Sequence[Answer]) -> None:
        """Count answers to these rows."""
        self.rows += len(answers)
        if self.gold is not None:
            self.gold.add(rows, answers)
        for row, answer in zip(rows, answers, strict=True):
            error, label = answer["error"], answer.get("label")
            if isinstance(error, dict):
                self.failures[str(error["type"]) or "error"] += 1
            elif isinstance(label, str):
                self.counts[label] += 1
                margin = answer.get("margin")
                if isinstance(margin, float):
                    self._margins[label] += shown(margin)
                self.doubts.add(answer, row)
            elif "labels" in answer:
                self.counts.update(labels_in(answer["labels"], self.counts) or ())

    @property
    def failed(self) -> int:
        """Rows that failed."""
        return self.failures.total()

    def spend(self, cost: Cost, seconds: float) -> None:
        """Add the cost of a block."""
        self.cost += cost
        self.seconds += seconds

    def to_dict(self) -> dict[str, object]:
        """Return the summary for a report."""
        return {
            "rows": self.rows,
            "failed": self.failed,
            "failures": dict(self.failures),
            "labels": {
                label: {
                    "rows": count,
                    "mean_margin": self._mean_margin(label),
                }
                for label, count in self.counts.items()
            },
            "rows_with_tiny_label_mass": self.doubts.tiny,
            "said_instead": dict(self.doubts.instead.most_common(_SHOWN)),
            "rows_decided_by_the_prompt": dict(
                zip(("moved", "of"), self.doubts.moved(), strict=True)
            ),
            "seconds": round(self.seconds, 3),
            "rows_per_second": round(self.rows / self.seconds, 3) if self.seconds else None,
            "rows_answered_by_an_equal_one": self.cost.equal,
            "prompt_tokens": self.cost.prompt_tokens,
            "cached_prompt_tokens": self.cost.cached_tokens,
            "generated_tokens": self.cost.generated_tokens,
            **({} if self.gold is None else {self.gold.key: self.gold.to_dict()}),
        }

    def tell(self) -> None:
        """Print the summary on stderr."""
        rate = f", {self.rows / self.seconds:.1f} rows/s" if self.seconds else ""
        output.say(f"{output.counted(self.rows, 'row')} in {self.seconds:.1f} s{rate}")
        for label, count in self.counts.most_common(_SHOWN):
            mean = self._mean_margin(label)
            margin = "" if mean is None else f", mean margin {mean:.2f}"
            output.say(f"  {label}: {count} ({percent(count, self.rows)}){margin}")
        if len(self.counts) > _SHOWN:
            output.say(f"  and {len(self.counts) - _SHOWN} more labels")
        for line in (*self._failures(), *self._saved()):
            output.say(line)
        self.tell_doubts()
        if self.gold is not None:
            self.gold.tell()

    def tell_doubts(self) -> None:
        """Print warnings about the label set on stderr, if any."""
        for line in self.doubts.lines(self.counts, self._mending):
            output.say(line)

    def _mean_margin(self, label: str) -> float | None:
        return self._margins[label] / self.counts[label] if label in self._margins else None

    def _failures(self) -> list[str]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.failures.most_common())
        return [f"{self.failed} failed: {kinds}"] if self.failed else []

    def _saved(self) -> list[str]:
        told = []
        if self.cost.equal:
            told.append(f"{output.counted(self.cost.equal, 'row')} answered by a duplicate")
        if self.cost.cached_tokens:
            of = f"{self.cost.cached_tokens:,} of {self.cost.prompt_tokens:,} prompt tokens"
            told.append(f"{of} reused")
        return [f"saved: {', '.join(told)}"] if told else []
