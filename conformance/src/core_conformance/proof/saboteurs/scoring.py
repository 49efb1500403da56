"""Saboteurs of scores."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from core.errors import PromptTooLongError
from core.kit.chat import RenderedPrompt
from core.types import Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import encode_continued


class Rescores(ReferenceModel):
    """A model that changes every score."""

    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        return [
            score if score.error else self.changed(score)
            for score in super().score(prompts, continuations, *config, **options)
        ]

    def changed(self, score: Score) -> Score:
        """Return the score that is given instead of this one."""
        raise NotImplementedError


@saboteur("mean-score", "a score is the mean over its tokens")
class MeanScore(Rescores):
    def changed(self, score: Score) -> Score:
        return dataclasses.replace(score, logprob=score.logprob / len(score.token_logprobs))


@saboteur("score-skips-first", "the first token of a continuation is not scored")
class ScoreSkipsFirst(Rescores):
    def changed(self, score: Score) -> Score:
        rest = score.token_logprobs[1:] or score.token_logprobs
        return dataclasses.replace(score, token_logprobs=rest, logprob=math.fsum(rest))


@saboteur("never-greedy-score", "is_greedy is never set")
class NeverGreedyScore(Rescores):
    def changed(self, score: Score) -> Score:
        return dataclasses.replace(score, is_greedy=False)


@saboteur("greedy-at-the-end", "is_greedy is that of the last token")
class GreedyAtTheEnd(ReferenceModel):
    """Overwrites what it found at the token before."""

    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        scores = super().score(prompts, continuations, *config, **options)
        pairs = zip(prompts, continuations, scores, strict=True)
        return [
            score if score.error else dataclasses.replace(score, is_greedy=self._ends(*texts))
            for *texts, score in pairs
        ]

    def _ends(self, prompt: str, continuation: str) -> bool:
        *before, last = encode_continued(prompt, continuation)
        [logits] = self.engine.forward([before])
        return logits[last] == max(logits)


@saboteur("likely-is-greedy", "is_greedy is set for whatever is not unlikely")
class LikelyIsGreedy(Rescores):
    def changed(self, score: Score) -> Score:
        return dataclasses.replace(score, is_greedy=score.logprob > -1000.0)


@saboteur("sorted-scores", "scores come in the order of their lengths")
class SortedScores(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        pairs = sorted(zip(prompts, continuations, strict=True), key=lambda pair: len(pair[0]))
        heads, tails = [p for p, _ in pairs], [c for _, c in pairs]
        return super().score(heads, tails, *config, **options)


@saboteur("scores-fail-together", "one bad pair fails all of them")
class ScoresFailTogether(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        scores = super().score(prompts, continuations, *config, **options)
        error = next((score.error for score in scores if score.error), None)
        return scores if error is None else [Score(error=error) for _ in scores]


@saboteur("scores-one-token-less", "a pair has to fit the context with all of its tokens")
class ScoresOneTokenLess(ReferenceModel):
    """Asks for a place for the last token, which is never read."""

    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        scores = super().score(prompts, continuations, *config, **options)
        pairs = zip(prompts, continuations, scores, strict=True)
        return [self._fitting(*pair) for pair in pairs]

    def _fitting(self, prompt: str, continuation: str, score: Score) -> Score:
        limit = self.engine.language.context_length
        if score.error or len(encode_continued(prompt, continuation)) <= limit:
            return score
        return Score(error=PromptTooLongError(limit + 1, limit))


@saboteur("templates-unscored", "a prompt that a template made cannot be continued")
class TemplatesUnscored(ReferenceModel):
    """Joins texts, and has not thought of one that is more than text."""

    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        if any(isinstance(prompt, RenderedPrompt) for prompt in prompts):
            raise TypeError("can only join plain texts")
        return super().score(prompts, continuations, *config, **options)
