"""Saboteurs of batches: rows that are lost, mixed up, or read one another."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, cast

from core.options import GenerateConfig
from core.protocols import Backend, Capability
from core.types import BatchResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import Reference
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel


@saboteur("tokens-in-a-list", "a BatchResult holds a list")
class TokensInAList(Batch):
    def results(self) -> list[BatchResult]:
        lists: Any = [(result, list(result.tokens)) for result in super().results()]
        return [dataclasses.replace(result, tokens=tokens) for result, tokens in lists]


@saboteur("batch-of-nothing", "batch_generate fails on an empty batch")
class BatchOfNothing(Batch):
    def results(self) -> list[BatchResult]:
        max(row.limit for row in self.rows.values())
        return super().results()


@saboteur("as-they-finish", "results come in the order in which rows end")
class AsTheyFinish(Batch):
    def results(self) -> list[BatchResult]:
        return sorted(super().results(), key=lambda result: len(result.text))


@saboteur("rows-see-each-other", "a row's last token is also read by the row after it")
class RowsSeeEachOther(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for before, row in itertools.pairwise(rows):
            row.context[0:0] = before.context[-1:]
        return super().step(rows, meter)


@saboteur("slot-not-cleared", "a row that gets another's slot still sees its last token")
class SlotNotCleared(Batch):
    def _prefilled(self, row: int) -> list[int]:
        ended = [r for r, other in self.rows.items() if other.reason is not None and r < row]
        if ended:
            self.rows[row].context.extend(self.rows[ended[0]].context[-1:])
        return super()._prefilled(row)


@saboteur("stop-not-in-batches", "batch_generate looks neither at stop nor at stop_tokens")
class StopNotInBatches(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, dataclasses.replace(config, stop=(), stop_tokens=()))


class OthersWithStops(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        stops = config.stop or config.stop_tokens
        changed = [f" {prompt}" for prompt in prompts] if stops else prompts
        super().__init__(engine, changed, config)


class OnlyBatches(ReferenceModel):
    batch_class = OthersWithStops


@saboteur(
    "others-with-stops",
    "with a stop string a batch continues differently, if only batches are offered",
)
def others_with_stops() -> Backend:
    """Return the reference with batches alone."""
    kind = type("OnlyBatches", (Reference,), {"model_class": OnlyBatches})
    needed = {Capability.BATCH_GENERATE, Capability.LOGPROBS}
    return cast("Backend", kind(without=frozenset(Capability) - needed))


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
