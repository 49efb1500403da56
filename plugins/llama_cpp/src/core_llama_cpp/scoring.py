"""``score``: how likely given continuations are, from one pass over prompt and continuation."""

from __future__ import annotations

from collections.abc import Sequence

from core.clock import RequestClock
from core.errors import CoreError
from core.serving.failures import own_error
from core.serving.prefixes import grouped
from core.serving.reading import Pair, pair
from core.serving.served import ServedModel
from core.types import Score
from core_llama_cpp.passes import Counts, Passes, ask
from core_llama_cpp.questions import Branch
from core_llama_cpp.sampling import check_numbers, logprob
from core_llama_cpp.session import Logits


class Scored:
    """One continuation, and what was read of it: a `core_llama_cpp.questions.Question`."""

    def __init__(self, index: int, ids: Pair) -> None:
        self.index = index
        self.ids = list(ids.ids[:-1])  # the last token is scored and never fed
        self.start = ids.start
        self.reads = len(ids.ids) - ids.start
        self.error: Exception | None = None
        self._targets = list(ids.ids[ids.start :])
        self._logprobs: list[float] = []
        self._greedy = True

    def read(self, place: int, logits: Logits) -> None:
        """The logits that the next target is drawn from."""
        check_numbers(logits)
        target = self._targets[len(self._logprobs)]
        self._logprobs.append(logprob(logits, target))
        self._greedy = self._greedy and int(logits.argmax()) == target

    def branches(self) -> Sequence[Branch]:
        """Nothing is asked behind it."""
        return ()

    def fail(self, error: Exception) -> None:
        """It could not be computed; the first error counts."""
        self.error = self.error or own_error(error)

    def score(self) -> Score:
        """What came of it."""
        if self.error is not None:
            return Score(error=self.error)
        return Score(sum(self._logprobs), tuple(self._logprobs), self._greedy)


def score_all(
    model: ServedModel,
    passes: Passes,
    prompts: Sequence[str],
    continuations: Sequence[str],
    clock: RequestClock,
) -> tuple[list[Score], Counts]:
    """One score per pair, in order, and what they cost.

    What is wrong with one pair is its own ``error``.
    """
    found = [pair(model, *texts) for texts in zip(prompts, continuations, strict=True)]
    scores = [Score(error=row) if isinstance(row, CoreError) else Score() for row in found]
    rows = [Scored(index, row) for index, row in enumerate(found) if isinstance(row, Pair)]
    groups = grouped(rows, [row.ids for row in rows], [row.start - 1 for row in rows])
    counts = [ask(passes, prefix, group, clock) for prefix, group in groups]
    for row in rows:
        scores[row.index] = row.score()
    cached = sum(count.cached for count in counts)
    return scores, Counts(sum(count.tokens for count in counts), cached)
