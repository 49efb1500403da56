"""``score``: log-probabilities of given continuations, in one pass over prompt and continuation."""

from __future__ import annotations

from collections.abc import Sequence

from core.types import Score
from core_runtime.request import own_error
from core_runtime.rows import ScoreRow
from core_runtime.sequences.passes import Branch
from core_runtime.sequences.sampling import check_logits, logprob
from core_runtime.sequences.session import Logits


class ScoreQuestion:
    """The `questions.RowQuestion` of one continuation, with the values read so far."""

    def __init__(self, row: ScoreRow) -> None:
        self.row, self.ids, self.reads = row, row.ids, len(row.targets)
        self.longest, self.shareable = 0, row.read_from
        self.error: Exception | None = None
        self._logprobs: list[float] = []
        self._greedy = True

    def read(self, place: int, logits: Logits) -> None:
        """Take the logits for the next target."""
        check_logits(logits)
        target = self.row.targets[len(self._logprobs)]
        self._logprobs.append(logprob(logits, target))
        self._greedy = self._greedy and int(logits.argmax()) == target

    def branches(self, most: int) -> Sequence[Branch]:
        """Return no branches: nothing follows a continuation."""
        return ()

    def fail(self, error: Exception) -> None:
        """Record the error of a pair that could not be computed; the first one counts."""
        self.error = self.error or own_error(error)

    def result(self) -> Score:
        """Return the score of the pair, or the error that ended it."""
        if self.error is not None:
            return Score(error=self.error)
        return Score(sum(self._logprobs), tuple(self._logprobs), self._greedy)
