"""Saboteurs of sampling: options that are ignored, or honoured in the wrong place."""

from __future__ import annotations

import dataclasses
import math
from array import array
from collections.abc import Sequence
from itertools import count
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.stop import StopGeneration
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter


class OtherOptions(Generation):
    """Generates with options that are not those asked for."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, dataclasses.replace(config, **self.instead(config)), room)

    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        raise NotImplementedError


class ClassifiesOtherwise(Classifier):
    """Classifies with options that are not those asked for."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, dataclasses.replace(config, **self.instead(config)), meter)

    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        raise NotImplementedError


class PenalisesOtherwise(Classifier):
    """Changes the logits before the reference's own penalty, which it then leaves out."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        penalty, plain = self.config.repeat_penalty, self.config
        self.config = dataclasses.replace(plain, repeat_penalty=1.0)
        result = super().result(prompt, ids, self.penalised(logits, ids, penalty))
        self.config = plain
        return dataclasses.replace(result, logits=logits if plain.return_logits else None)

    def penalised(self, logits: array[float], ids: list[int], penalty: float) -> array[float]:
        raise NotImplementedError


def _ignoring(kind: type, option: str, value: object) -> type:
    def instead(self: object, config: GenerateConfig) -> dict[str, Any]:
        return {option: value}

    return type(f"Ignores_{option}", (kind,), {"instead": instead})


for _kind, _operation, _option, _off in (
    (OtherOptions, "generate", "top_k", 0),
    (OtherOptions, "generate", "top_p", 1.0),
    (OtherOptions, "generate", "min_p", 0.0),
    (OtherOptions, "generate", "typical_p", 1.0),
    (ClassifiesOtherwise, "classify", "top_k", 0),
    (ClassifiesOtherwise, "classify", "top_p", 1.0),
    (ClassifiesOtherwise, "classify", "min_p", 0.0),
    (ClassifiesOtherwise, "classify", "typical_p", 1.0),
):
    saboteur(
        f"{_operation}-ignores-{_option.replace('_', '-')}",
        f"{_operation} does not look at {_option}",
    )(_ignoring(_kind, _option, _off))


_noise = count(3000)  # from 1 on, chance would fail a check of repeat_penalty as well


@saboteur("never-greedy", "a temperature of 0 counts as not given, and the default is another")
class NeverGreedy(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        # Under a huge penalty, chance would decide whether a token comes twice.
        if config.temperature or config.repeat_penalty > 100:
            return {}
        return {"temperature": 5.0, "seed": next(_noise)}


@saboteur("seed-makes-warm", "with a seed, a temperature of 0 counts as 1")
class SeedMakesWarm(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        cold = config.temperature == 0 and config.seed is not None
        return {"temperature": 1.0} if cold else {}


@saboteur("shared-noise", "the rows of a batch draw from one stream of random numbers")
class SharedNoise(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for row in rows:
            row.random = rows[0].random
        return super().step(rows, meter)


@saboteur("drawn-for-all-steps", "with a seed, the first token that is drawn is that of every step")
class DrawnForAllSteps(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        if not self.drawn or self.config.seed is None or not self.config.temperature:
            return super().take(logits)
        first = self.context[len(self.prompt)]
        return super().take([0.0 if id == first else -1e9 for id in range(len(logits))])


_INT32 = 2**32


@saboteur("classify-seeds-are-floats", "classify makes a float of its seed")
class ClassifySeedsAreFloats(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {} if config.seed is None else {"seed": int(float(config.seed)) % 2**64}


@saboteur("top-k-of-32-bits", "generate keeps the low 32 bits of top_k")
class TopKOf32Bits(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"top_k": config.top_k % _INT32}


@saboteur(
    "penalties-overflow", "logits that an enormous or a minute penalty makes infinite count as 0"
)
class PenaltiesOverflow(PenalisesOtherwise):
    def penalised(self, logits: array[float], ids: list[int], penalty: float) -> array[float]:
        scores = array("f", logits)
        for token in set(ids):
            scores[token] *= penalty if scores[token] < 0 else 1 / max(penalty, 1e-300)
            if abs(scores[token]) > 1e20:
                scores[token] = 0.0
        return scores


@saboteur("coldest-is-warm", "a temperature by which nothing can be divided counts as 1")
class ColdestIsWarm(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": 1.0} if 0 < config.temperature < 1e-20 else {}


@saboteur("least-top-p-is-off", "a top_p that rounds to 0 is off")
class LeastTopPIsOff(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"top_p": 1.0} if config.top_p < 1e-7 else {}


@saboteur("stop-ids-of-32-bits", "the low 32 bits of a stop token's id are kept")
class StopIdsOf32Bits(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"stop_tokens": tuple(token % _INT32 for token in config.stop_tokens)}


@saboteur("max-tokens-of-32-bits", "the low 32 bits of max_tokens are kept, as a signed number")
class MaxTokensOf32Bits(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        low = config.max_tokens % _INT32
        return {"max_tokens": low if 0 < low < 2**31 else 1}


@saboteur(
    "one-token-stops",
    'a generation of a single token ends with "stop"',
)
class OneTokenStops(StopGeneration):
    def take(self, logits: Sequence[float]) -> list[Token]:
        tokens = super().take(logits)
        if self.config.max_tokens == 1 and self.reason:
            self.reason = "stop"
        return tokens


@saboteur("penalty-divides-all", "classify() divides negative logits by the penalty as well")
class PenaltyDividesAll(Classifier):
    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        changed = logits[:]
        for token in set(ids):
            if logits[token] < 0:
                changed[token] /= self.config.repeat_penalty**2  # which is multiplied by it
        result = super().result(prompt, ids, changed)
        return result if result.logits is None else dataclasses.replace(result, logits=logits)


@saboteur("hot-is-two", "classify takes temperatures above 2 for 2")
class HotIsTwo(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": min(config.temperature, 2.0)}


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


def _with_logprob(token: Token, change: Any) -> Token:
    return token if token.logprob is None else Token(token.id, token.text, change(token.logprob))
