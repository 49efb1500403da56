"""Saboteurs that numbers at the ends of their ranges, or of more bits, get the better of."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.distribution import PenalisesOtherwise
from core_conformance.proof.saboteurs.sampling import ClassifiesOtherwise, OtherOptions
from core_conformance.proof.saboteurs.stop import StopGeneration
from core_conformance.reference.classification import Classifier
from core_conformance.reference.vocabulary import VOCAB_SIZE

_INT32 = 2**32


@saboteur("seeds-of-32-bits", "generate keeps the low 32 bits of a seed")
class SeedsOf32Bits(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {} if config.seed is None else {"seed": config.seed % _INT32}


@saboteur("classify-seeds-are-floats", "classify makes a float of its seed")
class ClassifySeedsAreFloats(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {} if config.seed is None else {"seed": int(float(config.seed)) % 2**64}


@saboteur("top-k-of-32-bits", "generate keeps the low 32 bits of top_k")
class TopKOf32Bits(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"top_k": config.top_k % _INT32}


@saboteur("top-k-wraps", "classify takes a top_k beyond the vocabulary modulo its size")
class TopKWraps(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"top_k": config.top_k % VOCAB_SIZE}


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


@saboteur("stop-ids-wrap", "a stop token beyond the vocabulary is taken from its beginning")
class StopIdsWrap(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"stop_tokens": tuple(token % VOCAB_SIZE for token in config.stop_tokens)}


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
    """Divides, and never looks at a logit's sign: a negative one becomes likelier."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        changed = logits[:]
        for token in set(ids):
            if logits[token] < 0:
                changed[token] /= self.config.repeat_penalty**2  # which is multiplied by it
        result = super().result(prompt, ids, changed)
        return result if result.logits is None else dataclasses.replace(result, logits=logits)
