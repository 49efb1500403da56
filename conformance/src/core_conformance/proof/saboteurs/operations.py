"""Saboteurs of one operation: an option that it drops, a call that others keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from core.kit.operations import OPERATIONS
from core.kit.support import OPTION_NEEDS
from core.options import (
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    resolve_generate,
)
from core.protocols import Backend, Capability
from core.types import AttentionSnapshot, BatchResult, ClassifyResult, Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import EVERYTHING, Reference
from core_conformance.reference.optional import ReferenceModel

_OFF: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(GenerateConfig)}


def _dropping(capability: Capability, option: str) -> type[ReferenceModel]:
    """Return a model that does not look at this option in this operation."""

    class Drops(ReferenceModel):
        def resolve_request(
            self, operation: str, config: GenerateConfig | None, options: Any
        ) -> GenerateConfig:
            request = super().resolve_request(operation, config, options)
            if OPERATIONS[operation][0] is not capability:
                return request
            return dataclasses.replace(request, **{option: _OFF[option]})

    return Drops


for _operation, _method, _options in (
    (Capability.CHAT, "chat", "min_p stop"),
    (Capability.SUBMITTING, "submit", "temperature timeout"),
    (Capability.BATCH_STREAMING, "batch_stream", "seed cancel"),
    (Capability.BATCH_GENERATE, "batch_generate", "top_p return_logprobs"),
    (
        Capability.CLASSIFY_STREAMING,
        "classify_iter",
        "typical_p labels label_prefix return_logits",
    ),
):
    for _option in _options.split():
        saboteur(
            f"{_method}-drops-{_option}".replace("_", "-"), f"{_method} does not look at {_option}"
        )(_dropping(_operation, _option))


Config = GenerateConfig | None


def _timed(options: Mapping[str, Any]) -> Any:
    """Return the options that `score` knows, without values that are below any range."""
    known = RequestOptions.__annotations__
    return {name: value for name, value in options.items() if name in known and value != -1.0}


@saboteur("score-takes-anything", "score takes unknown keywords, wrong values")
class ScoreTakesAnything(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        return super().score(prompts, continuations, *config, **_timed(options))


@saboteur(
    "inspect-attention-takes-anything", "inspect_attention takes unknown keywords, and wrong values"
)
class InspectAttentionTakesAnything(ReferenceModel):
    def inspect_attention(self, prompt: str, *config: Any, **options: Any) -> AttentionSnapshot:
        return super().inspect_attention(prompt, *config, **_timed(options))


@saboteur("classify-iter-raises", "what is wrong with one prompt ends classify_iter")
class ClassifyIterRaises(ReferenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        for result in super()._classified(prompts, config):
            if result.error is not None:
                raise result.error
            yield result


class _NotRefusing(ReferenceModel):
    """Looks at options only where a plain prompt is generated from, or classified."""

    def refuse_unsupported(self, request: GenerateConfig, capability: Capability) -> None:
        if capability in (Capability.GENERATE, Capability.CLASSIFY):
            super().refuse_unsupported(request, capability)

    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: Any
    ) -> GenerateConfig:
        request = super().resolve_request(operation, config, options)
        if operation in ("generate", "classify"):
            return request
        needs = OPTION_NEEDS.items()
        undeclared = {name: _OFF[name] for name, need in needs if need not in self.capabilities}
        return dataclasses.replace(request, **undeclared)


class _Limited(Reference):
    """The reference without some capabilities, made of another model."""

    def __init__(self, model: type[ReferenceModel], without: Collection[Capability]) -> None:
        self.model_class = model
        super().__init__(without)


saboteur(
    "others-take-seed",
    "seed is not declared, and batch_stream, classify_iter and others drop it silently",
)(partial(_Limited, _NotRefusing, {Capability.SEED}))


# --------------------------------------------------------------------------- batch_generate alone

_BUT_BATCHES = EVERYTHING - {Capability.BATCH_GENERATE}


class _SeenBefore(ReferenceModel):
    """Answers a batch that was asked before from a cache."""

    _seen: frozenset[object] = frozenset()

    def batch_generate(
        self, prompts: Sequence[str], config: Config = None, /, **options: Unpack[GenerateOptions]
    ) -> list[BatchResult]:
        results = super().batch_generate(prompts, config, **options)
        key = (*prompts, repr(resolve_generate(config, options)))
        if key in self._seen:
            return [*results[1:], *results[:1]]
        self._seen |= {key}
        return results


def _alone(model: type[ReferenceModel]) -> Callable[[], Backend]:
    return partial(_Limited, model, _BUT_BATCHES)


saboteur(
    "lone-batch-remembers",
    "a batch that was asked before finds the rows of its cache one place off",
)(_alone(_SeenBefore))
