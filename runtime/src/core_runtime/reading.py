"""Models that also score continuations and return hidden states."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Unpack

from core.errors import CoreError
from core.kit.base import RequestClock, stopping
from core.kit.support import checked_layers, checked_pairs, checked_prompts
from core.options import GenerateConfig, RequestOptions
from core.protocols import Capability
from core.token_ids import TokenIds, token_pairs
from core.types import HiddenResult, Score
from core_runtime.classifying import ClassifyingModel
from core_runtime.equal_rows import A, EqualRows, R, RowComputation
from core_runtime.model import InProcessModel
from core_runtime.rows import PromptRow, ScoreRow, prompt_rows, score_rows, score_token_rows


class HiddenCalls(InProcessModel):
    """The calls of a model that returns hidden states."""

    @abstractmethod
    def state_reader(
        self, layers: tuple[int, ...], clock: RequestClock
    ) -> RowComputation[PromptRow, HiddenResult]:
        """Make the computation of one call of `hidden_states`; ``layers`` are counted from 0.

        Raises `core.UnsupportedOptionError` for a layer that the engine does not return.
        """

    def hidden_states(
        self,
        prompts: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        *,
        layers: Sequence[int] = (-1,),
        **options: Unpack[RequestOptions],
    ) -> list[HiddenResult]:
        """Read the hidden states at each prompt's last token; errors are per row."""
        request = self.checked_request(Capability.HIDDEN_STATES, config, options)
        numbers = checked_layers(layers, self.info.num_layers)
        with stopping(RequestClock(request)) as clock:
            reader = self.state_reader(numbers, clock)
            texts = checked_prompts("hidden_states", prompts)
            rows, errors = prompt_rows(self._served, texts, clock.check)
            failed = {index: HiddenResult(error=error) for index, error in errors.items()}
            return self.read_rows(reader, rows, failed, clock)

    def read_rows(
        self,
        computation: RowComputation[R, A],
        rows: Sequence[R],
        results: dict[int, A],
        clock: RequestClock,
    ) -> list[A]:
        """Return the results of a call, in order, and record its metrics.

        ``computation`` yields the results of the rows that can run; ``results`` are the others'.
        """
        if self.equal_rows and len(rows) > 1:
            computation = EqualRows(computation)

        tokens = 0
        for row, result in computation.results([rows]):
            results[row.index] = result
            tokens += len(row.ids) if result.error is None else 0

        self.record_reading(tokens, computation.reused, 0, clock.seconds)
        return [results[index] for index in sorted(results)]


class ReadingModel(HiddenCalls, ClassifyingModel):
    """A model that generates, classifies, scores, and returns hidden states."""

    @abstractmethod
    def scorer(self, clock: RequestClock) -> RowComputation[ScoreRow, Score]:
        """Make the computation of one call of `score`."""

    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Score ``continuations[i]`` after ``prompts[i]``; errors are per row."""
        request = self.checked_request(Capability.SCORING, config, options)
        heads, tails = checked_pairs("score", prompts, continuations)
        with stopping(RequestClock(request)) as clock:
            rows, errors = score_rows(self._served, heads, tails, clock.check)
            return self.read_rows(self.scorer(clock), rows, _scores(errors), clock)

    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        """Score token ids; see `core.TokenPrompts`."""
        request = self.checked_request(Capability.TOKEN_PROMPTS, config, options)
        pairs = token_pairs(prompts, continuations)
        with stopping(RequestClock(request)) as clock:
            rows, errors = score_token_rows(self._served, pairs, clock.check)
            return self.read_rows(self.scorer(clock), rows, _scores(errors), clock)


def _scores(errors: Mapping[int, CoreError]) -> dict[int, Score]:
    return {index: Score(error=error) for index, error in errors.items()}
