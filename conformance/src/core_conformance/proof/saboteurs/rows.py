"""Saboteurs that are right for a few rows, and wrong after a full block of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

from core.options import GenerateConfig
from core.types import BatchResult, ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine
from core_conformance.reference.optional import ReferenceModel


@saboteur(
    "row-behind-64", "a row that stands alone after full blocks of 64 gets the first row's result"
)
class RowBehind64(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        if len(results) > 64 and len(results) % 64 == 1:
            results[-1] = results[0]
        return results


@saboteur("errors-shift-rows", "after the fourth row that fails, results are one place off")
class ErrorsShiftRows(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        failed = [row for row, result in enumerate(results) if result.error is not None]
        good = [row for row in range(len(results)) if row not in failed and row > sum(failed[3:4])]
        if len(failed) > 3:
            moved = [results[row] for row in (*good[1:], *good[:1])]
            for row, result in zip(good, moved, strict=True):
                results[row] = result
        return results


@saboteur("rows-in-a-byte", "rows are numbered with a byte")
class RowsInAByte(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        return [results[row % 256] for row in range(len(results))]


@saboteur(
    "logits-buffer",
    "the logits of 32 rows have a place; those of later rows are found in it as well",
)
class LogitsBuffer(Classifier):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        return [
            dataclasses.replace(result, logits=results[row % 32].logits)
            for row, result in enumerate(results)
        ]


@saboteur("seeds-count-blocks", "every block of 16 rows has a seed of its own")
class SeedsCountBlocks(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, config)
        for row, generation in self.rows.items():
            if config.seed is not None and row >= 16:
                generation.random = Random(config.seed + row // 16)


@saboteur(
    "stream-turns-blocks", "classify_iter gives each block of 32 rows but the first backwards"
)
class StreamTurnsBlocks(ReferenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        results = super()._classified(prompts, config)
        yield from islice(results, 32)
        while block := list(islice(results, 32)):
            yield from reversed(block)


@saboteur(
    "scores-in-blocks",
    "from the second block of 32 pairs on, score starts over with the first block's prompts",
)
class ScoresInBlocks(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        heads = [prompts[row % 32] for row in range(len(prompts))]
        return super().score(heads, continuations, *config, **options)


@saboteur("seventeenth-row", "from the seventeenth row on, batch_generate's rows are one place off")
class SeventeenthRow(Batch):
    def results(self) -> list[BatchResult]:
        results = super().results()
        return results[:16] + results[17:] + results[16:17]


@saboteur("sixteen-rows-stream", "batch_stream has numbers for 16 rows")
class SixteenRowsStream(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        for row, token in super()._streamed(prompts, config):
            yield row % 16, token


@saboteur(
    "one-behind-three-rounds",
    "of three times as many rows as slots and one more, the last loses a token of its prompt",
)
class OneBehindThreeRounds(Batch):
    def _prefilled(self, row: int) -> list[int]:
        ids = super()._prefilled(row)
        if ids and row == self.count - 1 == 3 * self._engine.slots.count:
            del self.rows[row].context[1]
        return ids
