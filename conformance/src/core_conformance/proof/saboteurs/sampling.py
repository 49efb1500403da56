"""Saboteurs of sampling: options that are ignored, or honoured in the wrong place."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

from core.options import GenerateConfig
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.meter import Meter

SEEDED = {"sampling.seed", "batch.seeded", "classify.first-token-seeded"}
ONE_SEED = {"sampling.seeds-differ", "classify.first-token-seeded"}
# Whatever holds two greedy answers against each other.
COMPARES_GREEDY = {
    "batch.equals-generate",
    "batch.error-rows",
    "batch.stops",
    "batch.many",
    "batch.order",
    "batch.stop",
    "batch.stream",
    "cancel.closed-stream",
    "cancel.unset",
    "cancel.works-after",
    "chat.equals-generate",
    "chat.final-message",
    "chat.mappings",
    "chat.no-template-options",
    "chat.second-turn",
    "classify.first-token",
    "classify.later-tokens",
    "concurrency.classify-while-streaming",
    "concurrency.parallel-slots",
    "concurrency.second-stream",
    "concurrency.streams",
    "concurrency.submit",
    "concurrency.waiting-turn",
    "errors.too-long",
    "history.speech",
    "lifecycle.any-thread",
    "sampling.cold",
    "sampling.greedy",
    "sampling.greedy-ignores-seed",
    "sampling.min-p-one",
    "sampling.repeat-penalty-output",
    "sampling.top-k-one",
    "sampling.top-p-tiny",
    "scoring.greedy",
    "streaming.close",
    "submitting.close",
    "submitting.equals-generate",
    "batch.repeatable",
    "batch.stream-errors",
    "batch.options",
    "batch.stream-options",
    "chat.options",
    "submitting.options",
}


class OtherOptions(Generation):
    """Generates with options that are not those asked for."""

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, dataclasses.replace(config, **self.instead(config)), room)

    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        """Return the options that differ."""
        raise NotImplementedError


class ClassifiesOtherwise(Classifier):
    """Classifies with options that are not those asked for."""

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, dataclasses.replace(config, **self.instead(config)), meter)

    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        """Return the options that differ."""
        raise NotImplementedError


def _ignoring(kind: type, option: str, value: object) -> type:
    def instead(self: object, config: GenerateConfig) -> dict[str, Any]:
        return {option: value}

    return type(f"Ignores_{option}", (kind,), {"instead": instead})


_SEEDED_TOKEN = {"classify.first-token-seeded"}  # which is drawn from the 8 best
_TOP_K = {"sampling.top-k", "sampling.typical-p-first"}  # which takes the best of what is left

for _kind, _operation, _option, _off, _kills in (
    (OtherOptions, "generate", "top_k", 0, {"sampling.top-k-one"} | _SEEDED_TOKEN),
    (OtherOptions, "generate", "top_p", 1.0, {"sampling.top-p-tiny"}),
    (OtherOptions, "generate", "min_p", 0.0, {"sampling.min-p-one"}),
    (ClassifiesOtherwise, "classify", "top_k", 0, _TOP_K | _SEEDED_TOKEN),
    (ClassifiesOtherwise, "classify", "top_p", 1.0, {"sampling.top-p"}),
    (ClassifiesOtherwise, "classify", "min_p", 0.0, {"sampling.min-p"}),
):
    saboteur(
        f"{_operation}-ignores-{_option.replace('_', '-')}",
        f"{_operation} does not look at {_option}",
        _kills,
    )(_ignoring(_kind, _option, _off))


@saboteur(
    "temperature-first",
    "the filters look at the distribution after temperature",
    {"sampling.top-p", "sampling.min-p", "sampling.typical-p", "sampling.typical-p-first"},
)
class TemperatureFirst(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": 1.0} if config.temperature else {}

    def __init__(self, engine: Engine, config: GenerateConfig, meter: Meter) -> None:
        super().__init__(engine, config, meter)
        self.divisor = config.temperature or 1.0

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        scaled = array("f", (value / self.divisor for value in logits))
        result = super().result(prompt, ids, scaled)
        wanted = self.config.return_logits
        return dataclasses.replace(result, logits=logits if wanted else None)


_noise = count(3000)  # from 1 on, chance would fail a check of repeat_penalty as well


@saboteur(
    "never-greedy",
    "a temperature of 0 counts as not given, and the default is another",
    {
        *COMPARES_GREEDY,
        "tokens.error-rows",
        "tokens.padding",
        "tokens.samples",
        "tokens.stream",
        "tokens.texts",
    },
)
class NeverGreedy(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        # Under a huge penalty, chance would decide whether a token comes twice.
        if config.temperature or config.repeat_penalty > 100:
            return {}
        return {"temperature": 5.0, "seed": next(_noise)}


@saboteur(
    "seed-makes-warm",
    "with a seed, a temperature of 0 counts as 1",
    {"sampling.greedy-ignores-seed"},
)
class SeedMakesWarm(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        cold = config.temperature == 0 and config.seed is not None
        return {"temperature": 1.0} if cold else {}


@saboteur("never-cold", "temperatures below 1 are raised to 1", {"sampling.cold"})
class NeverCold(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": max(config.temperature, 1.0)} if config.temperature else {}


@saboteur(
    "seed-ignored",
    "generate does not look at seed",
    {
        *SEEDED | {"batch.options", "batch.stream-options", "chat.options", "submitting.options"},
        "tokens.samples",
    },
)
class SeedIgnored(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"seed": None}


@saboteur(
    "seed-zero-is-none",
    "seed=0 counts as no seed",
    SEEDED | {"batch.options", "batch.stream-options", "chat.options", "submitting.options"},
)
class SeedZeroIsNone(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"seed": config.seed or None}


@saboteur("one-seed-for-all", "every seed gives the same draws", {*ONE_SEED, "tokens.samples"})
class OneSeedForAll(OtherOptions):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {} if config.seed is None else {"seed": 1}


@saboteur(
    "temperature-multiplies",
    "classify multiplies by the temperature",
    {
        "sampling.frequencies",
        "classify.first-token-seeded",
        "classify.free-draws",
        "classify.stream-options",
        "history.options",
    },
)
class TemperatureMultiplies(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": 1 / config.temperature} if config.temperature else {}


@saboteur(
    "classify-draws-at-one",
    "classify draws at temperature 1",
    {"sampling.frequencies", "classify.first-token-seeded"},
)
class ClassifyDrawsAtOne(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"temperature": 1.0} if config.temperature else {}


@saboteur(
    "shared-noise",
    "the rows of a batch draw from one stream of random numbers",
    {"batch.seeded", "batch.options", "batch.stream-options", "tokens.samples"},
)
class SharedNoise(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for row in rows:
            row.random = rows[0].random
        return super().step(rows, meter)


@saboteur(
    "classify-has-its-own-seed",
    "classify draws with random numbers of its own",
    {"classify.first-token-seeded"},
)
class ClassifyHasItsOwnSeed(ClassifiesOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {} if config.seed is None else {"seed": Random(config.seed).getrandbits(32)}


@saboteur(
    "seeded-at-every-step",
    "every step of a generation starts from the seed again, and draws a token of the same rank",
    {"sampling.steps"},
)
class SeededAtEveryStep(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        if self.config.seed is not None:
            self.random = Random(self.config.seed)
        return super().take(logits)


@saboteur(
    "drawn-for-all-steps",
    "with a seed, the first token that is drawn is that of every step",
    {
        "sampling.steps",
        "sampling.cold",
        "sampling.min-p-one",
        "sampling.top-k-one",
        "sampling.top-p-tiny",
    },
)
class DrawnForAllSteps(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        if not self.drawn or self.config.seed is None or not self.config.temperature:
            return super().take(logits)
        first = self.context[len(self.prompt)]
        return super().take([0.0 if id == first else -1e9 for id in range(len(logits))])
