"""``classify``: from prompts to results, one micro-batch after another.

Whatever goes wrong with one prompt becomes that row's ``error``; the other rows finish.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx

from core.clock import RequestClock
from core.errors import RequestError
from core.labels import with_scores
from core.options import GenerateConfig
from core.serving.batching import micro_batches
from core.serving.reading import Row, classify_rows
from core.types import ClassifyResult, Token
from core_mlx_native.failures import is_out_of_memory, not_a_number, too_large
from core_mlx_native.host import float_array, floats, ints
from core_mlx_native.label_reader import read_labels
from core_mlx_native.loader import LoadedModel
from core_mlx_native.prefill import prefill
from core_mlx_native.sampling import logprobs as logprobs_of
from core_mlx_native.sampling import sample


@dataclass(frozen=True, slots=True)
class Classifier:
    """Classifies with one model. ``run_on_owner`` runs a function where MLX may be used."""

    model: LoadedModel
    run_on_owner: Callable[[Callable[[], list[ClassifyResult]]], list[ClassifyResult]]

    def classify(
        self, prompts: Sequence[str], config: GenerateConfig, clock: RequestClock
    ) -> tuple[list[ClassifyResult], int]:
        """One result per prompt, in order, and how many tokens were run.

        Raises `LabelError` when labels cannot be told apart; anything else is a row's error.
        """
        rows, errors = classify_rows(self.model, prompts, config)
        results = {index: ClassifyResult(error=error) for index, error in errors.items()}
        for batch in micro_batches([len(row.ids) for row in rows], self.model.token_budget):
            chosen = [rows[position] for position in batch]
            for row, result in zip(chosen, self._try(chosen, config, clock), strict=True):
                results[row.index] = result
        done = [results[index] for index in range(len(prompts))]
        return done, sum(len(row.ids) for row in rows if done[row.index].error is None)

    def _try(
        self, rows: list[Row], config: GenerateConfig, clock: RequestClock
    ) -> list[ClassifyResult]:
        """Run one micro-batch; out of memory, run its halves, down to the row that does not fit."""
        try:
            clock.check()
            return self.run_on_owner(lambda: self._run(rows, config))
        except RequestError as error:
            return [ClassifyResult(error=error)] * len(rows)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if len(rows) > 1:
                half = len(rows) // 2
                return self._try(rows[:half], config, clock) + self._try(rows[half:], config, clock)
            return [ClassifyResult(error=too_large(len(rows[0].ids)))]

    def _run(self, rows: list[Row], config: GenerateConfig) -> list[ClassifyResult]:
        prompts = [row.ids for row in rows]
        decoder = self.model.decoder
        batch = prefill(decoder, prompts)
        logits = decoder.logits(batch.hidden_at([len(ids) - 1 for ids in prompts]))  # [B, V]
        tokens = sample(logits, prompts, config)  # [B]
        logprobs = floats(logprobs_of(logits, tokens)) if config.return_logprobs else None
        nan = mx.isnan(logits).any(axis=-1)  # [B]
        mx.eval(logits, tokens, nan)  # one synchronisation
        results = [
            ClassifyResult(
                token=self._token(token, logprobs[row] if logprobs else None),
                logits=float_array(logits[row]) if config.return_logits else None,
            )
            for row, token in enumerate(ints(tokens))
        ]
        questions = [row.question for row in rows if row.question is not None]
        if questions:
            scores = read_labels(decoder, batch, questions)
            results = [with_scores(*pair) for pair in zip(results, scores, strict=True)]
        return [
            ClassifyResult(error=not_a_number()) if bad else result
            for bad, result in zip(ints(nan), results, strict=True)
        ]

    def _token(self, token: int, logprob: float | None) -> Token:
        return Token(token, self.model.tokenizer.token_text(token), logprob)
