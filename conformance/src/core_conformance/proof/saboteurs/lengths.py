"""Saboteurs of lengths, and of what holds up to a size."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from core.errors import PromptTooLongError
from core.kit.labels import LabelTrie
from core.options import GenerateConfig
from core.types import Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.classify import ReadsTogether
from core_conformance.proof.saboteurs.scoring import Rescores
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.language import Language
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel

_FAR = 96  # tokens between the lengths of two rows
_WINDOW = 32  # tokens of a continuation
_REACH = 90  # characters of a prompt


@saboteur(
    "prompt-of-64", "a prompt of just 64 tokens is read without its first word, by every operation"
)
class PromptOf64(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        ids = super().prompt_ids(prompt)
        return [ids[0], *ids[2:]] if len(ids) == 64 else ids


@saboteur("answer-beyond-64", "after 64 tokens of an answer the first of its prompt is forgotten")
class AnswerBeyond64(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for row in rows:
            if row.drawn == 64:
                del row.context[1]
        return super().step(rows, meter)


@saboteur("batch-of-64", "batch_generate loses the last token of a prompt of just 64")
class BatchOf64(Batch):
    def _prefilled(self, row: int) -> list[int]:
        ids = super()._prefilled(row)
        if ids and len(self.rows[row].prompt) == 64:
            self.rows[row].context.pop()
        return ids


@saboteur("limit-of-32", "max_tokens of a multiple of 32 gives a token less")
class LimitOf32(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.limit -= self.limit % 32 == 0


@saboteur("penalty-last-64", "the penalty counts the last 64 tokens")
class PenaltyLast64(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        whole, self.context = self.context, self.context[-64:]
        tokens = super().take(logits)
        if len(self.context) > len(whole[-64:]):
            whole.append(self.context[-1])
        self.context = whole
        return tokens


@saboteur(
    "labels-after-a-block",
    "after a prompt of a multiple of 16 tokens, labels are read from its last token but one on",
)
class LabelsBehindABlock(Classifier):
    def _labels(self, prompt: str, ids: list[int]) -> tuple[int, LabelTrie]:
        anchor, trie = super()._labels(prompt, ids)
        return anchor - (len(ids) % 16 == 0), trie


@saboteur("score-window", "score reads the end of a prompt, as far as its window reaches")
class ScoreWindow(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        ends = [prompt[-_REACH:] for prompt in prompts]
        return super().score(ends, continuations, *config, **options)


@saboteur("score-of-32-tokens", "of a continuation 32 tokens are scored")
class ScoreOf32Tokens(Rescores):
    def changed(self, score: Score) -> Score:
        window = score.token_logprobs[:_WINDOW]
        return dataclasses.replace(score, token_logprobs=window, logprob=math.fsum(window))


@saboteur("full-context-refused", "a prompt that fills the context to its last place is refused")
class FullContextRefused(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        ids = super().prompt_ids(prompt)
        if len(ids) == self.language.context_length:
            raise PromptTooLongError(len(ids), len(ids) - 1)
        return ids


@saboteur(
    "much-padding",
    "in classify, a row that is far shorter than its longest neighbour is read with a pad token",
)
class MuchPadding(ReadsTogether):
    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        longest = max(map(len, rows), default=0)
        return [[*row, *[0] * (longest - len(row) > _FAR)] for row in rows]


Keys: TypeAlias = "tuple[tuple[array[float], ...], ...]"


@saboteur(
    "rotation-takes-all",
    'with context_overflow="rotate" a prompt of any length is read',
)
class RotationTakesAll(Engine):
    def check_length(self, length: int) -> None:
        if not self._rotates:
            super().check_length(length)


@saboteur("keys-of-one-head", "the keys of all heads lie in one array")
class KeysOfOneHead(Language):
    def keys(self, ids: Sequence[int]) -> Keys:
        return tuple((sum(layer[1:], array("f", layer[0])),) for layer in super().keys(ids))


@saboteur("keys-see-the-future", "the keys of a token depend on what comes after it")
class KeysSeeTheFuture(Language):
    def keys(self, ids: Sequence[int]) -> Keys:
        backwards = super().keys(ids[::-1])
        return tuple(tuple(head[::-1] for head in layer) for layer in backwards)


@saboteur("peak-for-good", "reset_peak_memory() leaves the peak as it is")
class PeakForGood(ReferenceModel):
    def reset_peak_memory(self) -> None:
        self.check_open()


_COLD = 0.01


class InWindow(Generation):
    """Penalises the tokens in the context alone."""

    window = 0

    def take(self, logits: Sequence[float]) -> list[Token]:
        """Draw a token."""
        whole, self.context = self.context, self.context[-self.window :]
        size = len(self.context)
        tokens = super().take(logits)
        self.context = whole + self.context[size:]
        return tokens


@saboteur(
    "penalty-of-the-context", "where the context rotates, repeat_penalty forgets what left it"
)
class PenaltyOfTheContext(Engine):
    """Counts the tokens that it holds."""

    generation_class = InWindow

    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        """Make a row for a prompt."""
        row = super().generation(prompt, config)
        if isinstance(row, InWindow):
            row.window = self.language.context_length
        return row


@saboteur("cold-is-greedy", "a temperature below 0.01 is taken for 0, so that no filter applies")
class ColdIsGreedy(Generation):
    """Divides by no small number."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        cold = config.temperature < _COLD
        super().__init__(ids, replace(config, temperature=0.0) if cold else config, room)


@saboteur(
    "rotation-drops-early",
    'with context_overflow="rotate" the oldest positions are dropped when half the context is full',
)
class RotationDropsEarly(Engine):
    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        most = self.language.context_length
        half = most // 2 if self._rotates else most
        return super().forward([row[-half:] for row in rows])
