"""Saboteurs of scores, of continuations and of token ids."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Unpack

from core.errors import PromptTooLongError
from core.kit.chat import RenderedPrompt
from core.options import GenerateConfig, GenerateOptions, RequestOptions
from core.token_ids import TokenIds, token_pairs, token_prompts
from core.types import Score, TokenSequence
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


@saboteur("continuations-tokenised-alone", "a continuation has the tokens that it has alone")
class ContinuationsTokenisedAlone(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        scores = super().score(prompts, continuations, *config, **options)
        for index, (prompt, continuation) in enumerate(zip(prompts, continuations, strict=True)):
            if not scores[index].error and not isinstance(prompt, RenderedPrompt):
                pair = [self.encode(prompt)], [self.encode(continuation)[1:]]
                (scores[index],) = self.score_tokens(*pair)
        return scores


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
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        if any(isinstance(prompt, RenderedPrompt) for prompt in prompts):
            raise TypeError("can only join plain texts")
        return super().score(prompts, continuations, *config, **options)


Config = GenerateConfig | None


@saboteur("tokens-any-mask", "a mask counts its ones, wherever they are")
class TokensAnyMask(ReferenceModel):
    def generate_tokens(
        self,
        prompts: TokenIds,
        config: Config = None,
        /,
        *,
        attention_mask: TokenIds | None = None,
        num_samples: int = 1,
        **options: Unpack[GenerateOptions],
    ) -> list[TokenSequence]:
        if attention_mask is not None:
            rows, masks = token_prompts(prompts), token_prompts(attention_mask)
            prompts = [row[-sum(mask) :] for row, mask in zip(rows, masks, strict=False)]
        return super().generate_tokens(prompts, config, num_samples=num_samples, **options)


@saboteur("tokens-seeds-drift", "each call draws from where the last one ended")
class TokensSeedsDrift(ReferenceModel):
    _calls = 0

    def generate_tokens(
        self,
        prompts: TokenIds,
        config: Config = None,
        /,
        *,
        attention_mask: TokenIds | None = None,
        num_samples: int = 1,
        **options: Unpack[GenerateOptions],
    ) -> list[TokenSequence]:
        seed = options.get("seed")
        if seed is not None:
            self._calls += 1
            options = {**options, "seed": seed + self._calls}
        return super().generate_tokens(
            prompts, config, attention_mask=attention_mask, num_samples=num_samples, **options
        )


@saboteur("tokens-take-anything", "score_tokens takes unknown keywords")
class TokensTakeAnything(ReferenceModel):
    def score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, *config: Any, **options: Any
    ) -> list[Score]:
        known = RequestOptions.__annotations__
        sound: Any = {name: it for name, it in options.items() if name in known}
        return super().score_tokens(prompts, continuations, *config, **sound)


@saboteur(
    "token-scores-cut-left",
    "ids that do not fit the context are scored with their beginning cut off",
)
class TokenScoresCutLeft(ReferenceModel):
    def score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, *config: Any, **options: Any
    ) -> list[Score]:
        room = self.engine.language.context_length + 1
        pairs = token_pairs(prompts, continuations)
        heads = [head[max(0, len(head) + len(tail) - room) :] for head, tail in pairs]
        return super().score_tokens(heads, continuations, *config, **options)
