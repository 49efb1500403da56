"""Saboteurs whose fault needs two things at once: an option and an operation, or a border."""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count, islice
from random import Random

from core.errors import LabelError, PromptTooLongError
from core.kit.base import RequestClock
from core.kit.support import checked_prompts
from core.options import GenerateConfig
from core.protocols import TextModel
from core.token_ids import TokenIds
from core.types import ClassifyResult, GenerateMetrics, HiddenResult, TokenSequence
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import MICRO_BATCH, Classifier
from core_conformance.reference.engine import Engine, Generation, GivenIds
from core_conformance.reference.language import log_softmax
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sampling import typical
from core_conformance.reference.stream import SubmittedStream
from core_conformance.reference.training import Training

_COLD = 0.05  # a temperature
_BLOCK = 16  # positions


@saboteur("awaited-call-without-its-cancel", "an awaited call drops the cancel of its caller")
class AwaitedCallWithoutItsCancel(ReferenceModel):
    """Has its own cancel for each task, in the place of the caller's."""

    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        """Return the result of a call that only its task can stop."""
        options.pop("cancel", None)
        return await super().call_async(operation, *arguments, **options)


@saboteur("cold-is-greedy-a", "a low temperature is greedy, without typical_p")
class ColdIsGreedy(Classifier):
    """Takes what is nearly 0 for 0."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        cold = config.temperature < _COLD
        super().__init__(engine, replace(config, temperature=0.0) if cold else config, meter)


@saboteur(
    "min-p-of-all-tokens",
    "min_p compares with the best token of all, also where typical_p has dropped it",
)
class MinPOfAllTokens(Classifier):
    """Computes the probabilities once, before the filters."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        """Return the result of a min_p that is as much larger as the best token was likelier."""
        own = self.config
        if own.min_p and own.typical_p < 1:
            lead = math.exp(max(logits) - max(typical(logits, own.typical_p)))
            self.config = replace(own, min_p=min(1.0, own.min_p * lead))
        try:
            return super().result(prompt, ids, logits)
        finally:
            self.config = own


@saboteur(
    "blocks-draw-with-other-seeds", "each block of classify_iter draws with a seed of its own"
)
class BlocksDrawWithOtherSeeds(ReferenceModel):
    """Counts the blocks up in the seed."""

    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        for block in count():
            rows = checked_prompts("classify_iter", list(islice(prompts, MICRO_BATCH)))
            if not rows:
                return
            seed = None if config.seed is None else (config.seed + block) % 2**64
            yield from super()._classified(iter(rows), replace(config, seed=seed))


@saboteur("metrics-of-the-last-block", "the metrics of classify_iter are those of its last block")
class MetricsOfTheLastBlock(ReferenceModel):
    """Runs one call for each block."""

    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        while rows := checked_prompts("classify_iter", list(islice(prompts, MICRO_BATCH))):
            yield from super()._classified(iter(rows), config)


@saboteur(
    "no-last-place-after-whole-blocks",
    "after a prompt of whole blocks, one token less is drawn than fits",
)
class NoLastPlaceAfterWholeBlocks(Engine):
    """Takes a block more than it needs."""

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        """Make a row that ends too early after whole blocks."""
        row = super().generation(prompt, config)
        room = self.language.context_length - len(row.prompt)
        if not self._rotates and len(row.prompt) % _BLOCK == 0 and room > 1:
            row.limit = min(row.limit, room - 1)
        return row


@saboteur(
    "no-states-of-a-full-context", "hidden_states rejects a prompt that fills the context exactly"
)
class NoStatesOfAFullContext(ReferenceModel):
    """Leaves a place for a token that is never drawn."""

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return the states of prompts that leave room."""
        results = super().do_hidden_states(prompts, request, layers)
        limit = self.engine.language.context_length
        return [
            HiddenResult(error=PromptTooLongError(limit, limit))
            if result.error is None and len(self.engine.prompt_ids(prompt)) == limit
            else result
            for prompt, result in zip(prompts, results, strict=True)
        ]


@saboteur(
    "ids-do-not-rotate", "a continuation of ids ends at the full context, although it rotates"
)
class IdsDoNotRotate(Engine):
    """Shifts the context of texts alone."""

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        """Make a row that ends with the context if it is of ids."""
        row = super().generation(prompt, config)
        if isinstance(prompt, GivenIds):
            room = max(1, self.language.context_length - len(row.prompt))
            row.limit = min(row.limit, room)
        return row


@saboteur("labels-without-case", "labels that differ in case alone are refused as equal")
class LabelsWithoutCase(Classifier):
    """Compares labels as a person might."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, config, meter)
        if len({label.casefold() for label in config.labels}) < len(config.labels):
            raise LabelError("two labels are equal")


@saboteur("loads-draw-alike", "draws without a seed are the same in every load")
class LoadsDrawAlike(Engine):
    """Begins with the seed 0 where none is given."""

    dice: Random | None = None

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        """Make a row with the next of the load's own seeds."""
        self.dice = self.dice or Random(0)
        if config.seed is None:
            config = replace(config, seed=self.dice.getrandbits(32))
        return super().generation(prompt, config)


@saboteur("samples-are-copies", "the samples of a prompt of ids are the same without a seed")
class SamplesAreCopies(ReferenceModel):
    """Draws for the whole call once."""

    def do_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> list[TokenSequence]:
        """Return the first sample of each prompt, so often."""
        rows = super().do_generate_tokens(prompts, request, attention_mask, num_samples)
        if request.seed is not None:
            return rows
        return [rows[place - place % num_samples] for place in range(len(rows))]


@saboteur("timeout-begins-in-the-slot", "the timeout of a batch's row begins when it gets its slot")
class TimeoutBeginsInTheSlot(Batch):
    """Starts a clock with each row."""

    def _prefilled(self, row: int) -> list[int]:
        generation = self.rows[row]
        generation.clock = RequestClock(generation.config)
        return super()._prefilled(row)


@saboteur(
    "handle-with-default-options",
    "with_adapter gives a model with the default overflow of the context",
)
class HandleWithDefaultOptions(ReferenceModel):
    """Makes a new context for each adapter."""

    def with_adapter(self, path: str | os.PathLike[str] | None, /) -> TextModel:
        """Return a model that stops at its context's end."""
        model = super().with_adapter(path)
        if isinstance(model, ReferenceModel):
            model.engine._rotates = False
        return model


@saboteur("closed-request-runs-on", "a submitted request whose stream is closed runs to its end")
class ClosedRequestRunsOn(SubmittedStream):
    """Forgets a request that is closed."""

    def close(self) -> None:
        """End the stream alone."""
        if self.finish_reason is None:
            self._end("cancelled")


@saboteur("top-p-of-the-top-k", "top_p measures the probabilities that top_k has left")
class TopPOfTheTopK(Classifier):
    """Renormalises after each filter."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        """Return the result of a top_p that is as much smaller as top_k left."""
        own = self.config
        if own.top_k and own.top_p < 1:
            ranked = sorted(map(math.exp, log_softmax(logits)), reverse=True)
            self.config = replace(own, top_p=own.top_p * math.fsum(ranked[: own.top_k]))
        try:
            return super().result(prompt, ids, logits)
        finally:
            self.config = own


@saboteur("second-training-from-scratch", "a second training begins with a new adapter")
class SecondTrainingFromScratch(Training):
    """Makes an adapter for each run."""

    def __post_init__(self) -> None:
        self.language = replace(self.language, bias={})
        super().__post_init__()
