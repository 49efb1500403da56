"""The summary of all rows: labels, margins, failures, savings, and warnings about the labels."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from core.errors import CalibrationError, CoreError
from core_cli import output
from core_cli.exits import in_flags
from core_cli.rows.gold_labels import labels_in
from core_cli.values import Answered, Cost
from core_cli.writing.answers import shown
from core_tasks.fitting import prior_of

if TYPE_CHECKING:
    from core_cli.reading.row import Row
    from core_cli.values import Answer


class AnswerMetrics(Protocol):
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
        gold: AnswerMetrics | None = None,
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
        savings = []
        if self.cost.equal:
            savings.append(f"{output.counted(self.cost.equal, 'row')} answered by a duplicate")
        if self.cost.cached_tokens:
            of = f"{self.cost.cached_tokens:,} of {self.cost.prompt_tokens:,} prompt tokens"
            savings.append(f"{of} reused")
        return [f"saved: {', '.join(savings)}"] if savings else []


_FEW, _MOST = 20, 0.9  # labelled rows needed for a warning; the largest share of one label
_TINY, _RELATIVE = 1e-6, 1e-3  # smallest label mass: absolute, and relative to the likeliest token
_TRIED = 8  # rows to run again with the labels joined the other way
_SAMPLE, _MOVED = 512, 0.2  # rows to sample; the share whose label the prior may change
_SHOWN, _LONGEST = 20, 40


class Doubts:
    """Signs, in the labelled answers of a run, that a label set does not work.

    ``rows`` are the first with unlikely labels. ``joining`` is set by the caller to the advice for
    these, if another way of joining labels to prompts makes them likelier.
    """

    def __init__(self) -> None:
        self.tiny = self.unlikely = 0
        self.rows: list[Row] = []
        self.joining: str | None = None
        self.instead: Counter[str] = Counter()
        self._logprobs: list[Mapping[str, float]] = []

    def add(self, answer: Answer, row: Row | None = None) -> None:
        """Count a labelled answer; an answer read back from a table has fewer values."""
        mass, token, logprobs = (answer.get(name) for name in ("label_mass", "token", "logprobs"))
        if isinstance(mass, float):
            mass = shown(mass)
            least = _TINY
            if isinstance(token, dict):
                least = max(_TINY, _RELATIVE * _probability(token))
            self.tiny += mass < _TINY
            if isinstance(token, dict) and mass < least:
                self.unlikely += 1
                self.instead[str(token.get("text"))] += 1
            if row is not None and mass < least and len(self.rows) < _TRIED:
                self.rows.append(row)
        raw = answer.get("level", "raw") == "raw"
        if raw and isinstance(logprobs, dict) and len(self._logprobs) < _SAMPLE:
            self._logprobs.append(logprobs)

    def moved(self) -> tuple[int, int]:
        """Return the number of rows whose label changes without the prior, and the number of rows.

        The prior is a batch prior at its default strength (`core_tasks.fitting.prior_of`).
        """
        if len(self._logprobs) < _FEW:
            return 0, 0
        labels = [*self._logprobs[0]]
        rows = [[row.get(label, float("nan")) for label in labels] for row in self._logprobs]
        try:
            prior = prior_of(rows, "batch")
            return sum(_best(row) != _best(prior(row)) for row in rows), len(rows)
        except CalibrationError:  # rows with different labels, or a label of zero probability
            return 0, 0

    def lines(self, counts: Mapping[str, int], command: str | None) -> list[str]:
        """Return warnings for these counts of rows by label.

        ``command`` fixes them, if given.
        """
        # Labels may be as uneven as the texts, and then a prior does not help.
        prompted, uneven = self._decided_by_the_prompt(), self._uneven(counts)
        warnings = [*uneven, *prompted, *self._unlikely_labels()]
        if prompted and command is not None:
            warnings.append(f"To subtract the prior, run:\n{command}")
        elif uneven:
            warnings.append("If the texts are not as uneven, measure the accuracy: --gold FIELD.")
        return warnings

    def _uneven(self, counts: Mapping[str, int]) -> list[str]:
        labelled = sum(counts.values())
        if labelled < _FEW or len(counts) < 2:
            return []
        label, count = max(counts.items(), key=lambda pair: pair[1])
        never = [repr(label) for label, count in counts.items() if not count]
        warnings = []
        if count > _MOST * labelled:
            warnings.append(
                f"Warning: {percent(count, labelled)} of the rows get the label {label!r}."
            )
        if never:
            warnings.append(f"Warning: labels never chosen: {', '.join(never[:_SHOWN])}.")
        return warnings

    def _decided_by_the_prompt(self) -> list[str]:
        moved, rows = self.moved()
        if moved <= _MOVED * rows:
            return []
        return [
            f"Warning: for {percent(moved, rows)} of {output.counted(rows, 'row')} the label "
            "changes when the prior is subtracted: the prompt favours a label, or most rows have "
            "the same one."
        ]

    def _unlikely_labels(self) -> list[str]:
        count = max(self.tiny, self.unlikely)
        if not count:
            return []
        rows = output.counted(count, "row")
        tokens = ", ".join(f"{_cut(text)} ({count})" for text, count in self.instead.most_common(3))
        instead = f"; the likeliest token is {tokens}" if tokens else ""
        advice = self.joining or (
            "Reword the prompt so that a label follows naturally; --show-prompt displays it."
        )
        return [
            f"Warning: in {rows} no label is a likely continuation (very low label_mass){instead}. "
            f"{advice}"
        ]


class Failures:
    """A counter of failed rows; with ``explained`` the first five are reported on stderr."""

    _REPORTED = 5

    def __init__(self, explained: bool) -> None:
        self.count = 0
        self._explained = explained

    def add(self, rows: Sequence[Answered]) -> None:
        """Count the failed rows, and report the first ones."""
        for row in rows:
            if row.error is not None:
                self.count += 1
                if self._explained and self.count <= self._REPORTED:
                    output.say(f"Error: {_explanation(row)}")

    def end(self) -> None:
        """Print the number of failures that were not reported."""
        more = self.count - self._REPORTED
        if self._explained and more > 0:
            output.say(f"and {more} more")


def _explanation(row: Answered) -> str:
    error, place = row.error, row.row.place
    words = in_flags(error) if isinstance(error, CoreError) else str(error)
    text = " ".join(words.split()) or type(error).__name__
    return text if text.startswith(place) else f"{place}: {text}"


def _probability(token: Mapping[str, object]) -> float:
    logprob = token.get("logprob")
    return math.exp(shown(logprob)) if isinstance(logprob, float) else 0.0


def _best(row: Sequence[float]) -> int:
    return row.index(max(row))


def _cut(text: str) -> str:
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def percent(count: int, total: int) -> str:
    """Return a share as text."""
    return f"{100 * count / total:.0f} %" if total else "-"
