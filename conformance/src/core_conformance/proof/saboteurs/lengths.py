"""Saboteurs that break where a chunk, a block or the context is just full, and at much padding."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from core.errors import PromptTooLongError
from core.kit.labels import LabelTrie
from core.options import GenerateConfig
from core.types import Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.classify import ReadsTogether
from core_conformance.proof.saboteurs.scoring import Rescores
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import PREFILL_CHUNK, Engine, Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel

_FAR = 96  # tokens between the lengths of two rows
_WINDOW = 32  # tokens of a continuation
_REACH = 90  # characters of a prompt


@saboteur("full-chunks", "generate loses the last token of a prompt that fills its chunks")
class FullChunks(Engine):
    def prefill(self, row: Generation, meter: Meter) -> None:
        super().prefill(row, meter)
        if len(row.prompt) % PREFILL_CHUNK == 0:
            row.context.pop()


@saboteur(
    "prompt-of-64", "a prompt of just 64 tokens is read without its first word, by every operation"
)
class PromptOf64(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        ids = super().prompt_ids(prompt)
        return [ids[0], *ids[2:]] if len(ids) == 64 else ids


@saboteur("block-of-16", "where decoding begins a block of 16 positions, it forgets the one before")
class BlockOf16(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for row in rows:
            if row.drawn == 1 and len(row.context) % 16 == 1:
                del row.context[-2]
        return super().step(rows, meter)


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
    "labels-behind-a-block",
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
    "one-too-many-is-cut", "a prompt of one token more than the context holds is cut in silence"
)
class OneTooManyIsCut(Engine):
    def check_length(self, length: int) -> None:
        super().check_length(length - (length == self.language.context_length + 1))


@saboteur(
    "much-padding",
    "in classify, a row that is far shorter than its longest neighbour is read with a pad token",
)
class MuchPadding(ReadsTogether):
    def together(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        longest = max(map(len, rows), default=0)
        return [[*row, *[0] * (longest - len(row) > _FAR)] for row in rows]


@saboteur(
    "much-padding-in-batches",
    "a row that decodes with a far longer one has a pad token after its prompt",
)
class MuchPaddingInBatches(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        longest = max((len(row.context) for row in rows), default=0)
        for row in rows:
            if row.drawn == 0 and longest - len(row.context) > _FAR:
                row.context.append(0)
        return super().step(rows, meter)
