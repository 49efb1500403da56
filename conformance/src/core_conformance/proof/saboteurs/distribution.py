"""Saboteurs of what is drawn: the repeat penalty, and invalid logprobs."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Sequence
from typing import Any

from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Generation


class PenalisesOtherwise(Classifier):
    """Changes the logits before the reference's own penalty, which it then leaves out."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        penalty, plain = self.config.repeat_penalty, self.config
        self.config = dataclasses.replace(plain, repeat_penalty=1.0)
        result = super().result(prompt, ids, self.penalised(logits, ids, penalty))
        self.config = plain
        return dataclasses.replace(result, logits=logits if plain.return_logits else None)

    def penalised(self, logits: array[float], ids: list[int], penalty: float) -> array[float]:
        """Return the logits that tokens are drawn from."""
        raise NotImplementedError


@saboteur("penalty-by-count", "repeat_penalty counts once for every time that a token came")
class PenaltyByCount(PenalisesOtherwise):
    def penalised(self, logits: array[float], ids: list[int], penalty: float) -> array[float]:
        scores = array("f", logits)
        for token in ids:
            scores[token] *= penalty if scores[token] < 0 else 1 / penalty
        return scores


@saboteur("penalty-of-prompt", "repeat_penalty counts the prompt's tokens, and not those generated")
class PenaltyOfPrompt(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        whole = self.context
        self.context = whole[: len(self.prompt)]
        tokens = super().take(logits)
        self.context = whole + self.context[len(self.prompt) :]
        return tokens


@saboteur("probabilities-for-logprobs", "generate gives probabilities instead of their logarithms")
class ProbabilitiesForLogprobs(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        return [_with_logprob(token, math.exp) for token in super().take(logits)]


@saboteur("logprobs-to-base-10", "classify gives logarithms to base 10")
class LogprobsToBase10(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result = super().result(prompt, ids, logits)
        token = result.token and _with_logprob(result.token, lambda value: value / math.log(10))
        return dataclasses.replace(result, token=token)


def _with_logprob(token: Token, change: Any) -> Token:
    return token if token.logprob is None else Token(token.id, token.text, change(token.logprob))
