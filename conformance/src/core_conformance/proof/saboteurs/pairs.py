"""Saboteurs of options in pairs: each alone is honoured, and one together with another is not."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Unpack

from core.kit.operations import OPERATIONS
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig, RequestOptions
from core.protocols import Capability, TokenStream
from core.types import ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.sampling import ClassifiesOtherwise
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.language import log_softmax
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sampling import penalised, sample
from core_conformance.reference.stream import ReferenceStream, SubmittedStream
from core_conformance.reference.vocabulary import Detokenizer, decode

Config = GenerateConfig


class _Relogs(TokenAssembler):
    """Gives each token the logprob that its row says."""

    def __init__(self, row: OtherLogprobs, stops: Sequence[str]) -> None:
        super().__init__(Detokenizer(), stops)
        self.row = row

    def add(self, token_id: int, logprob: float | None = None) -> list[Token]:
        reported = None if logprob is None else log_softmax(self.row.shown)[token_id]
        return super().add(token_id, reported)


class OtherLogprobs(Generation):
    """Tells log-probabilities of other logits than the model's."""

    def __init__(self, ids: Sequence[int], config: Config, room: int) -> None:
        super().__init__(ids, config, room)
        self.shown: Sequence[float] = ()
        self.assembler = _Relogs(self, config.stop)

    def take(self, logits: Sequence[float]) -> list[Token]:
        self.shown = self.instead(logits)
        return super().take(logits)

    def instead(self, logits: Sequence[float]) -> Sequence[float]:
        raise NotImplementedError

    def penalised(self, logits: Sequence[float]) -> list[float]:
        return penalised(logits, self.context, self.config.repeat_penalty)


@saboteur(
    "generation-has-top-k-first",
    "in generation top_k comes before top_p, which then looks at what top_k left",
)
class GenerationHasTopKFirst(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        if not self.config.top_k or not self.config.temperature:
            return super().take(logits)
        scores = penalised(logits, self.context, self.config.repeat_penalty)
        border = sorted(scores, reverse=True)[self.config.top_k - 1]
        pairs = zip(logits, scores, strict=True)
        return super().take([value if score >= border else -1e4 for value, score in pairs])


@saboteur("rotation-forgets-stop", "with a rotating context, stop strings are not looked for")
class RotationForgetsStop(Engine):
    def generation(self, prompt: str, config: Config) -> Generation:
        stop = () if self._rotates else config.stop
        return super().generation(prompt, dataclasses.replace(config, stop=stop))


@saboteur(
    "one-generator-for-all-streams",
    "streams draw from one stream of random numbers, which a seed resets",
)
class OneGeneratorForAll(ReferenceStream):
    shared = Random()

    def generate(self, row: Generation, meter: Meter) -> Iterator[Token]:
        if row.config.seed is not None:
            self.shared.seed(row.config.seed)
        row.random = self.shared
        return super().generate(row, meter)


class Submits(ReferenceModel):
    """Confuses what is submitted while another request was not read to its end."""

    open_request: tuple[SubmittedStream, Config] | None = None

    def submit(self, prompt: str, config: Config | None = None, /) -> TokenStream:
        request = config or GenerateConfig()
        if self.open_request and self.open_request[0].finish_reason is None:
            request = self.beside(request, self.open_request[1])
        stream = super().submit(prompt, request)
        if isinstance(stream, SubmittedStream):
            self.open_request = stream, request
        return stream

    def beside(self, config: Config, other: Config) -> Config:
        raise NotImplementedError


@saboteur("seeds-only-among-seeds", "a request with a seed draws freely while one without runs")
class SeedsOnlyAmongSeeds(Submits):
    def beside(self, config: Config, other: Config) -> Config:
        return dataclasses.replace(config, seed=None if other.seed is None else config.seed)


class Forgets(ReferenceModel):
    """Forgets an option if another is given, in one operation."""

    operation: Capability
    beside: str
    forgotten: dict[str, Any]

    def resolve_request(self, operation: str, config: Config | None, options: Any) -> Config:
        request = super().resolve_request(operation, config, options)
        given = getattr(request, self.beside) != getattr(GenerateConfig(), self.beside)
        if OPERATIONS[operation][0] is not self.operation or not given:
            return request
        return dataclasses.replace(request, **self.forgotten)


for _operation, _beside, _option, _value in (
    (Capability.CHAT, "seed", "min_p", 0.0),
    (Capability.SUBMITTING, "top_k", "repeat_penalty", 1.0),
    (Capability.BATCH_STREAMING, "stop", "stop_tokens", ()),
    (Capability.BATCH_GENERATE, "cancel", "stop", ()),
    (Capability.GENERATE, "stop_tokens", "top_p", 1.0),
):
    saboteur(
        f"{_operation}-forgets-{_option}-beside-{_beside}".replace("_", "-"),
        f"{_operation} does not look at {_option} where {_beside} is given",
    )(
        type(
            "Forgets",
            (Forgets,),
            {"operation": _operation, "beside": _beside, "forgotten": {_option: _value}},
        )
    )


@saboteur(
    "classify-forgets-top-p-beside-min-p", "classify does not look at top_p where min_p is given"
)
class ForgetsTopP(ClassifiesOtherwise):
    def instead(self, config: Config) -> dict[str, Any]:
        return {"top_p": 1.0} if config.min_p else {}


class DrawsOtherwise(Classifier):
    """Draws the token from other logits than the model's."""

    def result(self, prompt: str, ids: list[int], logits: array[float]) -> ClassifyResult:
        result, config = super().result(prompt, ids, logits), self.config
        if not config.temperature:
            return result
        token = sample(self.instead(logits, ids), ids, config, Random(config.seed))
        logprob = log_softmax(logits)[token] if config.return_logprobs else None
        return dataclasses.replace(result, token=Token(token, decode([token]), logprob))

    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        raise NotImplementedError


@saboteur("top-k-first", "top_k comes before top_p, which then looks at what top_k left")
class TopKFirst(DrawsOtherwise):
    def instead(self, logits: Sequence[float], ids: list[int]) -> Sequence[float]:
        if not self.config.top_k:
            return logits
        scores = penalised(logits, ids, self.config.repeat_penalty)
        border = sorted(scores, reverse=True)[self.config.top_k - 1]
        return [
            value if score >= border else -1e4 for value, score in zip(logits, scores, strict=True)
        ]


@saboteur(
    "scores-at-the-temperature",
    "score divides by the temperature of a config that it should not look at",
)
class ScoresAtTheTemperature(ReferenceModel):
    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: Config | None = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        heat = (config.temperature if config else 0.0) or 1.0
        return [
            dataclasses.replace(
                score, token_logprobs=tuple(value / heat for value in score.token_logprobs)
            )
            for score in super().score(prompts, continuations, config, **options)
        ]
