"""Saboteurs that keep what they computed, and find it again where it does not belong.

They keep long prompts only, as short ones cost little: so no check but those of what went before
asks one twice.
"""

from __future__ import annotations

import dataclasses
import threading
from array import array
from collections.abc import Sequence
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from core.errors import GenerationCancelled, GenerationTimeout
from core.kit.labels import common_length
from core.types import ClassifyResult, Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import PREFILL_CHUNK, Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel

LONG = 90  # characters of a prompt that is worth keeping
_LEAST = 72  # tokens of a beginning that is worth keeping
_MANY = 64  # rows in one call


class Remembers(Classifier):
    """A classifier with a memory that all calls of one model share."""

    _memories: ClassVar[WeakKeyDictionary[Engine, dict[Any, Any]]] = WeakKeyDictionary()

    @property
    def memory(self) -> dict[Any, Any]:
        return self._memories.setdefault(self._engine, {})


@saboteur(
    "matched-by-its-beginning",
    "a kept prompt is found by the beginning of its text, and taken for any that begins like it",
)
class FoundByItsBeginning(Remembers):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        if len(prompt) > LONG:
            logits = self.memory.setdefault(prompt[:LONG], logits)
        return super().result(prompt, ids, array("f", logits))


class Keeps(Engine):
    """An engine that keeps the tokens it has read, with the thread that read them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.kept: list[tuple[int, Sequence[int]]] = []

    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        return super().forward([self._joined(tuple(row)) for row in rows])

    def found(self) -> list[Sequence[int]]:
        return [ids for _, ids in self.kept]

    def _joined(self, row: Sequence[int]) -> Sequence[int]:
        nearest = max(self.found(), key=lambda ids: common_length(ids, row), default=())
        self.kept.append((threading.get_ident(), row))
        size = common_length(nearest, row) + 1
        return [*nearest[:size], *row[size:]] if size > _LEAST else row


@saboteur("one-token-too-many", "of a kept beginning one token too many is taken")
class OneTokenTooMany(Keeps):
    """Takes the first token that differs for one that does not."""


@saboteur(
    "half-written-beginnings", "a thread takes a beginning that another thread is still writing"
)
class HalfWrittenBeginnings(Keeps):
    def found(self) -> list[Sequence[int]]:
        me = threading.get_ident()
        return [ids for thread, ids in self.kept if thread != me]


@saboteur(
    "one-cache-for-models",
    "models of the same files share what they keep, and closing one empties what it has written",
)
class OneCacheForModels(ReferenceModel):
    kept: ClassVar[dict[str, tuple[Engine, array[float]]]] = {}

    class classifier_class(Classifier):
        def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
            cache = OneCacheForModels.kept
            if len(prompt) > LONG:
                _, logits = cache.setdefault(prompt, (self._engine, logits))
            return super().result(prompt, ids, array("f", logits))

    def release(self) -> None:
        super().release()
        for prompt, (engine, logits) in list(self.kept.items()):
            if engine is self.engine:
                self.kept[prompt] = engine, array("f", bytes(4 * len(logits)))


@saboteur(
    "labels-of-before", "what is kept for a prompt are the scores of its labels, whichever they are"
)
class LabelsOfBefore(Remembers):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if len(prompt) <= LONG or not result.logprobs or not result.probabilities:
            return result
        labels = tuple(result.logprobs)
        scores: ClassifyResult = self.memory.setdefault((prompt, len(labels)), result)
        ranked = [*(scores.logprobs or {}).values()]
        return dataclasses.replace(
            scores,
            token=result.token,
            logits=result.logits,
            label=labels[ranked.index(max(ranked))],
            logprobs=dict(zip(labels, ranked, strict=True)),
            probabilities=dict(zip(labels, (scores.probabilities or {}).values(), strict=True)),
        )


@saboteur("options-of-before", "what is kept for a prompt is its token, whatever it was drawn with")
class OptionsOfBefore(Remembers):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if len(prompt) <= LONG:
            return result
        return dataclasses.replace(result, token=self.memory.setdefault(prompt, result.token))


@saboteur(
    "seed-of-before",
    "what is kept for a prompt and its options, all but the seed, is the token that was drawn",
)
class SeedOfBefore(Remembers):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        if len(prompt) <= LONG:
            return result
        key = prompt, repr(dataclasses.replace(self.config, seed=None, cancel=None))
        return dataclasses.replace(result, token=self.memory.setdefault(key, result.token))


@saboteur("results-are-kept", "a result is kept as it was handed out, and handed out again")
class ResultsAreKept(Remembers):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        key = prompt, repr(dataclasses.replace(self.config, cancel=None))
        result = super().result(prompt, ids, logits)
        cached: ClassifyResult = self.memory.setdefault(key, result)
        return cached if not self.config.temperature else result


@saboteur(
    "overwritten-in-place",
    "a call of many rows overwrites what is kept, and it is found all the same",
)
class OverwrittenInPlace(Remembers):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        if len(prompts) >= _MANY:
            for cached in self.memory.values():
                cached[:] = array("f", reversed(cached))
        return results

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        if len(prompt) > LONG:
            logits = self.memory.setdefault(prompt, logits)
        return super().result(prompt, ids, array("f", logits))


@saboteur(
    "half-read-rows-kept", "a row whose reading was stopped is kept, and taken for read to its end"
)
class HalfReadRowsKept(Remembers):
    def results(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().results(prompts)
        for prompt, result in zip(prompts, results, strict=True):
            if isinstance(result.error, GenerationCancelled | GenerationTimeout):
                self.memory[prompt] = True
        return results

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        if prompt in self.memory and len(ids) > PREFILL_CHUNK:
            [logits] = self._engine.forward([ids[:PREFILL_CHUNK]])
        return super().result(prompt, ids, logits)


@saboteur(
    "scored-after-another",
    "a continuation is scored after a shorter prompt that was scored before",
)
class ScoredBehindAnother(ReferenceModel):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.heads: list[str] = []

    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        heads = [self._kept(prompt) for prompt in prompts]
        return super().score(heads, continuations, *config, **options)

    def _kept(self, prompt: str) -> str:
        cached = next((head for head in self.heads if prompt.startswith(head)), prompt)
        if len(prompt) > LONG:
            self.heads.append(prompt)
        return cached


class TakesAll(Engine):
    """Takes for a prompt all that is kept of the one before, if ``least`` of its tokens begin both.

    The rest of the earlier prompt replaces the prompt's own tokens.
    """

    least = _LEAST

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._last: list[int] = []

    def prefill(self, row: Generation, meter: Meter) -> None:
        super().prefill(row, meter)
        cached = self._last
        if common_length(cached, row.context) >= self.least and len(cached) < len(row.context):
            row.context[: len(cached)] = cached
        self._last = row.context  # which continues to grow


@saboteur(
    "answer-is-kept",
    "the answer of before stays in the state, after what the prompts have in common",
)
class AnswerIsKept(TakesAll):
    """Forgets to cut what it keeps where the prompts part."""
