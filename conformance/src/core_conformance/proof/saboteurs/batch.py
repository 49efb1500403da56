"""Saboteurs of batches: their rows, and the slots that rows share."""

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
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sampling import penalised
from core_conformance.reference.stream import ReferenceStream


@saboteur("batch-of-nothing", "batch_generate fails on an empty batch")
class BatchOfNothing(Batch):
    def results(self) -> list[BatchResult]:
        max(row.limit for row in self.rows.values())
        return super().results()


@saboteur("slot-not-cleared", "a row that gets another's slot still sees its last token")
class SlotNotCleared(Batch):
    def _prefilled(self, row: int) -> list[int]:
        ended = [r for r, other in self.rows.items() if other.reason is not None and r < row]
        if ended:
            self.rows[row].context.extend(self.rows[ended[0]].context[-1:])
        return super()._prefilled(row)


@saboteur(
    "error-is-stop",
    'a row that failed says finish_reason "stop"',
)
class ErrorIsStop(Batch):
    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        result = super()._result(row, tokens)
        failed = result.finish_reason == "error"
        return dataclasses.replace(result, finish_reason="stop") if failed else result


@saboteur("rows-renumbered", "batch_stream counts rows by when they began")
class RowsRenumbered(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        yield from super()._streamed(sorted(prompts, key=len), config)


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
    "one-after-three-rounds",
    "of three times as many rows as slots and one more, the last loses a token of its prompt",
)
class OneBehindThreeRounds(Batch):
    def _prefilled(self, row: int) -> list[int]:
        ids = super()._prefilled(row)
        if ids and row == self.count - 1 == 3 * self._engine.slots.count:
            del self.rows[row].context[1]
        return ids


class UsedSlots(Batch):
    """A batch whose rows inherit from the row that had their slot before.

    So do only those that are the third in their slot: few rows in many slots are right.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._used: list[int] = []

    def _prefilled(self, row: int) -> list[int]:
        ids = super()._prefilled(row)
        ended = [slot for slot, other in self.rows.items() if other.reason is not None]
        free = [slot for slot in ended if slot not in self._used]
        if ids and free:
            self._used.append(free[0])
            if len(self._used) > self._engine.slots.count:
                self.inherits(self.rows[row], self.rows[free[0]])
        return ids

    def inherits(self, row: Generation, before: Generation) -> None:
        raise NotImplementedError


class Inherits(Generation):
    """A row that may have heard of another one: what that had read, and how its text ended."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heard: frozenset[int] = frozenset()
        self.tail = self.said = ""

    def take(self, logits: Sequence[float]) -> list[Token]:
        heard = self.heard.difference(self.context)
        tokens = super().take(penalised(logits, heard, self.config.repeat_penalty))
        self.said += "".join(token.text for token in tokens)
        joined = (self.tail + self.said)[: len(self.tail) + 2]
        if self.reason is None and any(stop in joined for stop in self.config.stop):
            return tokens + self._end("stop")
        return tokens


class Hearing(Engine):
    """An engine of such rows."""

    generation_class = Inherits


class PenaltyOfBeforeBatch(UsedSlots):
    """Does not empty what the penalty has seen."""

    def inherits(self, row: Generation, before: Generation) -> None:
        assert isinstance(row, Inherits)
        row.heard = frozenset(before.context)


@saboteur(
    "penalty-of-before",
    "in a slot that is used again, the penalty has seen the tokens of the row before",
)
class PenaltyOfBefore(ReferenceModel):
    engine_class = Hearing
    batch_class = PenaltyOfBeforeBatch


class StopOfBeforeBatch(UsedSlots):
    """Does not empty the text that stop strings are looked for in."""

    def inherits(self, row: Generation, before: Generation) -> None:
        assert isinstance(row, Inherits)
        assert isinstance(before, Inherits)
        row.tail = before.said[-2:]


@saboteur(
    "stop-of-before",
    "in a slot that is used again, a stop string may begin in the text of the row before",
)
class StopOfBefore(ReferenceModel):
    engine_class = Hearing
    batch_class = StopOfBeforeBatch


@saboteur(
    "seed-of-the-slot",
    "in a slot that is used again, random numbers continue where the row before left them",
)
class SeedOfTheSlot(UsedSlots):
    def inherits(self, row: Generation, before: Generation) -> None:
        row.random = before.random


class Waits(ReferenceStream):
    """A stream that inherits from the one that ran last, if it has to wait for a slot."""

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        slots = self.engine.slots
        waits = slots.count > 1 and len(slots._holders) >= slots.count
        before = self.engine.__dict__.get("ran_last", row)
        self.engine.__dict__["ran_last"] = row
        if waits:
            self.inherits(row, before)
        yield from super().generate(row, meter)

    def inherits(self, row: Generation, before: Generation) -> None:
        raise NotImplementedError


@saboteur(
    "limit-of-before", "a request that waited for its slot has the max_tokens of the one before it"
)
class LimitOfBefore(Waits):
    def inherits(self, row: Generation, before: Generation) -> None:
        row.limit = before.limit


@saboteur(
    "logprobs-of-before",
    "a request that waited for its slot tells logprobs if the one before it was asked for them",
)
class LogprobsOfBefore(Waits):
    def inherits(self, row: Generation, before: Generation) -> None:
        reports = before.config.return_logprobs
        row.config = dataclasses.replace(row.config, return_logprobs=reports)
