"""Saboteurs of options in pairs: each alone is honoured, and one together with another is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from core.kit.operations import OPERATIONS
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.sampling import OtherOptions
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.language import log_softmax
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sampling import filtered, penalised, typical
from core_conformance.reference.stream import ReferenceStream, SubmittedStream
from core_conformance.reference.vocabulary import Detokenizer

Config = GenerateConfig


def _confuses(instead: Callable[[Config], dict[str, Any]]) -> type:
    def of(self: object, config: Config) -> dict[str, Any]:
        return instead(config)

    return type("Confuses", (OtherOptions,), {"instead": of})


_CONFUSIONS: tuple[tuple[str, str, Callable[[Config], dict[str, Any]]], ...] = (
    (
        "top-p-forgotten-beside-top-k",
        "top_p is not looked at where top_k is given",
        lambda config: {"top_p": 1.0} if config.top_k else {},
    ),
    (
        "min-p-forgotten-beside-top-k",
        "min_p is not looked at where top_k is given",
        lambda config: {"min_p": 0.0} if config.top_k else {},
    ),
    (
        "typical-p-forgotten-beside-top-p",
        "typical_p is not looked at where top_p is given",
        lambda config: {"typical_p": 1.0} if config.top_p < 1.0 else {},
    ),
    (
        "min-p-warm-beside-top-k",
        "min_p looks at the distribution after temperature where top_k is given",
        lambda config: {"min_p": config.min_p**config.temperature} if config.top_k else {},
    ),
    (
        "penalty-forgotten-while-drawing",
        "repeat_penalty counts in greedy generation alone",
        lambda config: {"repeat_penalty": 1.0} if config.temperature else {},
    ),
    (
        "penalty-forgotten-without-logprobs",
        "the path that computes no logprobs knows no repeat_penalty",
        lambda config: {} if config.return_logprobs else {"repeat_penalty": 1.0},
    ),
    (
        "seed-forgotten-beside-a-timeout",
        "with a timeout, a seed does not count",
        lambda config: {} if config.timeout is None else {"seed": None},
    ),
    (
        "stop-tokens-forgotten-beside-stop",
        "stop_tokens are not looked at where stop strings are given",
        lambda config: {"stop_tokens": ()} if config.stop else {},
    ),
    (
        "stop-forgotten-beside-a-seed",
        "stop strings are not looked at in draws with a seed",
        lambda config: {"stop": ()} if config.seed is not None and config.temperature else {},
    ),
    (
        "one-more-beside-stop-tokens",
        "with stop_tokens, one token more than max_tokens comes",
        lambda config: {"max_tokens": config.max_tokens + 1} if config.stop_tokens else {},
    ),
)
for _name, _breaks, _instead in _CONFUSIONS:
    saboteur(_name, _breaks)(_confuses(_instead))


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
        """Return the logits that are told."""
        raise NotImplementedError

    def penalised(self, logits: Sequence[float]) -> list[float]:
        """Return the logits after the repeat penalty."""
        return penalised(logits, self.context, self.config.repeat_penalty)


@saboteur("logprobs-penalised", "logprobs are those after the repeat penalty")
class LogprobsPenalised(OtherLogprobs):
    def instead(self, logits: Sequence[float]) -> Sequence[float]:
        return self.penalised(logits)


@saboteur("logprobs-at-the-temperature", "logprobs are those at the temperature asked for")
class LogprobsAtTheTemperature(OtherLogprobs):
    def instead(self, logits: Sequence[float]) -> Sequence[float]:
        return [value / (self.config.temperature or 1.0) for value in logits]


@saboteur("logprobs-of-what-is-left", "logprobs are those among the tokens left by filters")
class LogprobsOfWhatIsLeft(OtherLogprobs):
    def instead(self, logits: Sequence[float]) -> Sequence[float]:
        if not self.config.temperature:
            return logits
        scores = self.penalised(logits)
        if self.config.typical_p < 1.0:
            scores = typical(scores, self.config.typical_p)
        ranked = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)
        left = set(filtered(scores, ranked, self.config))
        return [value if token in left else -1e9 for token, value in enumerate(logits)]


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


@saboteur(
    "penalty-window-while-drawing",
    "where tokens are drawn, repeat_penalty knows the last four tokens only",
)
class PenaltyWindowWhileDrawing(Generation):
    def take(self, logits: Sequence[float]) -> list[Token]:
        whole = self.context
        self.context = whole[-4:] if self.config.temperature else list(whole)
        known = len(self.context)
        tokens = super().take(logits)
        self.context = whole + self.context[known:]
        return tokens


class _Seeing(Generation):
    """Its penalty knows tokens of other rows, too."""

    others: Sequence[int] = ()

    def take(self, logits: Sequence[float]) -> list[Token]:
        whole = self.context
        self.context = [*whole, *self.others]
        known = len(self.context)
        tokens = super().take(logits)
        self.context = whole + self.context[known:]
        return tokens


@saboteur(
    "one-penalty-for-all-rows",
    "while tokens are drawn, the rows of a batch have one history for repeat_penalty",
)
class OnePenaltyForAllRows(Engine):
    generation_class = _Seeing

    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        everything = [token for row in rows for token in row.context]
        for row in rows:
            if isinstance(row, _Seeing) and row.config.temperature:
                row.others = everything
        return super().step(rows, meter)


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
        """Return the options that count instead."""
        raise NotImplementedError


@saboteur(
    "filters-of-the-neighbour", "requests that run side by side have the filters of the first"
)
class FiltersOfTheNeighbour(Submits):
    def beside(self, config: Config, other: Config) -> Config:
        return dataclasses.replace(config, top_k=other.top_k, top_p=other.top_p)


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
