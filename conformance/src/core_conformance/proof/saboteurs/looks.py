"""Saboteurs that look at cancel and timeout at the beginning, and then continue to the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from core.errors import GenerationCancelled, GenerationTimeout, RequestError
from core.kit.base import RequestClock
from core.options import GenerateConfig, RequestOptions
from core.types import BatchResult, ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.optional import ReferenceModel


@saboteur(
    "batch-looks-until-the-first-token", "the rows of a batch are looked at until their first token"
)
class BatchLooksUntilTheFirstToken(Batch):
    """Runs the decode of a batch as one call into its library."""

    def _wanted(self, active: list[int]) -> list[int]:
        begun = [row for row in active if self.rows[row].drawn > 1]
        return begun + super()._wanted([row for row in active if row not in begun])


@saboteur(
    "timed-out-rows-lose-tokens",
    "the rows of a batch that is out of time come without the tokens that they had",
)
class TimedOutRowsLoseTokens(Batch):
    """Makes an empty result of a row that is late."""

    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        late = isinstance(self.errors.get(row), GenerationTimeout)
        return super()._result(row, [] if late else tokens)


@saboteur(
    "cancel-takes-the-finished",
    "of a batch that is cancelled, the rows that had finished are lost as well",
)
class CancelTakesTheFinished(Batch):
    """Gives every row the error of the call."""

    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        errors = (e for e in self.errors.values() if isinstance(e, GenerationCancelled))
        error = next(errors, None)
        if error is None or row in self.errors:
            return super()._result(row, tokens)
        return BatchResult((), "cancelled", error)


@saboteur(
    "classify-looks-at-its-first-rows",
    "classify looks at cancel and timeout in its first micro-batch only",
)
class ClassifyLooksAtItsFirstRows(Classifier):
    """Looks while it fills the pipeline, and never again."""

    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        """Runs a micro-batch; each but the first without a clock."""
        results = super().read(prompts)
        if not all(result.error for result in results):
            self._clock = RequestClock(GenerateConfig())
        return results


@saboteur(
    "score-looks-at-the-call",
    "score looks at cancel and timeout when it is called, and not between its pairs",
)
class ScoreLooksAtTheCall(ReferenceModel):
    """Has one look for all pairs."""

    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Scores all pairs, or none."""
        clock = RequestClock(self.resolve_request("score", config, options))
        try:
            clock.check()
        except RequestError as error:
            return [Score(error=error) for _ in prompts]
        return super().score(prompts, continuations)
