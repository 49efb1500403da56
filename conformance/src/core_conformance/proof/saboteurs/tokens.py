"""Saboteurs of prompts as token ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Unpack

from core.errors import EmptyPromptError
from core.options import GenerateConfig, GenerateOptions, RequestOptions
from core.protocols import TokenStream
from core.token_ids import TokenIds, token_pairs, token_prompts
from core.types import Score, TokenSequence
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import BOS

Config = GenerateConfig | None


class Writes(ReferenceModel):
    """A model that changes what goes into ``generate_tokens``, and what comes out."""

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
        super().generate_tokens([], config, num_samples=num_samples, **options)
        rows = [self.read(row) for row in token_prompts(prompts, attention_mask)]
        sequences = super().generate_tokens(rows, config, num_samples=num_samples, **options)
        return self.changed(sequences)

    def read(self, row: list[int]) -> list[int]:
        """Return the ids that are read instead of these."""
        return row

    def changed(self, sequences: list[TokenSequence]) -> list[TokenSequence]:
        """Return what is given instead of this."""
        return sequences


@saboteur(
    "tokens-with-bos",
    "a BOS is put before ids, which have one",
    {"tokens.texts", "tokens.padding", "tokens.results", "tokens.samples"},
)
class TokensWithBos(Writes):
    def read(self, row: list[int]) -> list[int]:
        return [BOS, *row] if row else row


@saboteur(
    "tokens-new-alone",
    "a sequence is what was generated, without its prompt",
    {"tokens.results", "tokens.padding"},
)
class TokensNewAlone(Writes):
    def changed(self, sequences: list[TokenSequence]) -> list[TokenSequence]:
        new = [sequence.generated.count(True) for sequence in sequences]
        return [
            dataclasses.replace(
                sequence, ids=sequence.ids[len(sequence.ids) - n :], generated=(True,) * n
            )
            for sequence, n in zip(sequences, new, strict=True)
        ]


@saboteur(
    "tokens-by-round",
    "samples come round by round, not side by side",
    {"tokens.results", "tokens.samples"},
)
class TokensByRound(ReferenceModel):
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
        sequences = super().generate_tokens(
            prompts, config, attention_mask=attention_mask, num_samples=num_samples, **options
        )
        return [
            sequence for sample in range(num_samples) for sequence in sequences[sample::num_samples]
        ]


@saboteur("tokens-read-padding", "what the mask marks as padding is read", {"tokens.padding"})
class TokensReadPadding(ReferenceModel):
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
        if attention_mask is None:
            return super().generate_tokens(prompts, config, num_samples=num_samples, **options)
        rows = token_prompts(prompts, attention_mask)
        whole = super().generate_tokens(prompts, config, num_samples=num_samples, **options)
        return [
            dataclasses.replace(sequence, ids=sequence.ids[-n:], generated=sequence.generated[-n:])
            for sequence, row in zip(whole, rows, strict=True)
            for n in [len(row) + sequence.generated.count(True)]
        ]


@saboteur("tokens-any-mask", "a mask counts its ones, wherever they are", {"tokens.mask"})
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


@saboteur("tokens-one-sample", "all samples of a prompt are the first one", {"tokens.samples"})
class TokensOneSample(ReferenceModel):
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
        sequences = super().generate_tokens(
            prompts, config, attention_mask=attention_mask, num_samples=num_samples, **options
        )
        return [sequences[place - place % num_samples] for place in range(len(sequences))]


@saboteur("tokens-seeds-drift", "each call draws from where the last one ended", {"tokens.samples"})
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


@saboteur("tokens-stream-behind-bos", "stream_tokens prepends a BOS", {"tokens.stream"})
class TokensStreamBehindBos(ReferenceModel):
    def stream_tokens(
        self,
        prompt: Sequence[int],
        config: Config = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        return super().stream_tokens([BOS, *prompt], config, **options)


class Scores(ReferenceModel):
    """A model that changes what goes into ``score_tokens``, and what comes out."""

    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: Config = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        scores = super().score_tokens(self.read(prompts), continuations, config, **options)
        return self.changed(scores)

    def read(self, prompts: TokenIds) -> TokenIds:
        """Return the ids that are read instead of these."""
        return prompts

    def changed(self, scores: list[Score]) -> list[Score]:
        """Return what is given instead of this."""
        return scores


@saboteur("token-scores-first-left-out", "the first token is not scored", {"tokens.scores"})
class TokenScoresFirstLeftOut(Scores):
    def changed(self, scores: list[Score]) -> list[Score]:
        return [
            dataclasses.replace(
                score,
                logprob=sum(score.token_logprobs[1:]),
                token_logprobs=score.token_logprobs[1:],
            )
            for score in scores
        ]


@saboteur("token-scores-near-sighted", "a score looks at four tokens in front", {"tokens.scores"})
class TokenScoresNearSighted(Scores):
    def read(self, prompts: TokenIds) -> TokenIds:
        return [row[-4:] for row in token_prompts(prompts)]


@saboteur("tokens-fail-together", "one bad row of ids fails all", {"tokens.error-rows"})
class TokensFailTogether(Writes):
    def changed(self, sequences: list[TokenSequence]) -> list[TokenSequence]:
        error = next((sequence.error for sequence in sequences if sequence.error), None)
        return (
            [
                dataclasses.replace(sequence, error=error, finish_reason="error")
                for sequence in sequences
            ]
            if (error is not None)
            else sequences
        )


@saboteur("tokens-raise", "an empty row of ids is raised from the call", {"tokens.error-rows"})
class TokensRaise(Writes):
    def read(self, row: list[int]) -> list[int]:
        if not row:
            raise EmptyPromptError("The prompt has no ids.")
        return row


@saboteur("tokens-take-anything", "score_tokens takes unknown keywords", {"tokens.call"})
class TokensTakeAnything(ReferenceModel):
    def score_tokens(
        self, prompts: TokenIds, continuations: TokenIds, config: Config = None, /, **options: Any
    ) -> list[Score]:
        known = RequestOptions.__annotations__
        sound: Any = {name: it for name, it in options.items() if name in known}
        return super().score_tokens(prompts, continuations, config, **sound)


_DEAF = {"cancel.every-operation", "cancel.timeout-every-operation"}


@saboteur("deaf-score-tokens", "score_tokens does not look at cancel and timeout", _DEAF)
class DeafScoreTokens(ReferenceModel):
    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: Config = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        super().score_tokens([], [], config, **options)
        return super().score_tokens(prompts, continuations)


@saboteur(
    "token-scores-cut-left",
    "ids that do not fit the context are scored with their beginning cut off",
    {"scoring.full-context"},
)
class TokenScoresCutLeft(ReferenceModel):
    def score_tokens(
        self,
        prompts: TokenIds,
        continuations: TokenIds,
        config: Config = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        room = self.engine.language.context_length + 1
        pairs = token_pairs(prompts, continuations)
        heads = [head[max(0, len(head) + len(tail) - room) :] for head, tail in pairs]
        return super().score_tokens(heads, continuations, config, **options)
