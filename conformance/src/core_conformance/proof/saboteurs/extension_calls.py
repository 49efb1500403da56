"""Saboteurs of batch_stream, classify_iter and submit, and of batch_generate by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from core.kit.base import RequestClock, TokenStreamBase
from core.kit.support import OPTION_NEEDS
from core.options import (
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    resolve_generate,
    resolve_request,
)
from core.protocols import Backend, Capability
from core.types import AttentionSnapshot, BatchResult, ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.backend import EVERYTHING, Reference
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import Record, ReferenceStream, SubmittedStream

Config = GenerateConfig | None
_OFF: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(GenerateConfig)}


def _known(options: Mapping[str, Any]) -> Any:
    """Return the options that are known, without values that are below any range."""
    return {name: value for name, value in options.items() if name in _OFF and value != -1.0}


@saboteur(
    "batch-stream-takes-anything",
    "batch_stream takes keywords that it does not know, and wrong values",
)
class BatchStreamTakesAnything(ReferenceModel):
    def batch_stream(
        self, prompts: Sequence[str], config: Config = None, /, **options: Any
    ) -> Iterator[tuple[int, Token]]:
        request = dataclasses.replace(config or GenerateConfig(), **_known(options))
        return super().batch_stream(prompts, request)


@saboteur(
    "classify-iter-takes-anything",
    "classify_iter takes keywords that it does not know, and wrong values",
)
class ClassifyIterTakesAnything(ReferenceModel):
    def classify_iter(
        self, prompts: Iterable[str], config: Config = None, /, **options: Any
    ) -> Iterator[ClassifyResult]:
        request = dataclasses.replace(config or GenerateConfig(), **_known(options))
        return super().classify_iter(prompts, request)


def _timed(options: Mapping[str, Any]) -> Any:
    """Return the options that `score` knows, without values that are below any range."""
    known = RequestOptions.__annotations__
    return {name: value for name, value in options.items() if name in known and value != -1.0}


@saboteur("score-takes-anything", "score takes unknown keywords, wrong values")
class ScoreTakesAnything(ReferenceModel):
    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: Config = None,
        /,
        **options: Any,
    ) -> list[Score]:
        return super().score(prompts, continuations, config, **_timed(options))


@saboteur(
    "inspect-attention-takes-anything", "inspect_attention takes unknown keywords, and wrong values"
)
class InspectAttentionTakesAnything(ReferenceModel):
    def inspect_attention(
        self, prompt: str, config: Config = None, /, **options: Any
    ) -> AttentionSnapshot:
        return super().inspect_attention(prompt, config, **_timed(options))


@saboteur("deaf-score", "score takes cancel and timeout, and does not look at them")
class DeafScore(ReferenceModel):
    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        resolve_request(config, options, "score")
        return super().score(prompts, continuations)


@saboteur(
    "deaf-inspect-attention",
    "inspect_attention takes cancel and timeout, and does not look at them",
)
class DeafInspectAttention(ReferenceModel):
    def inspect_attention(
        self, prompt: str, config: Config = None, /, **options: Unpack[RequestOptions]
    ) -> AttentionSnapshot:
        resolve_request(config, options, "inspect_attention")
        return super().inspect_attention(prompt)


@saboteur("cancelled-score-raises", "a cancel ends score, and not each of its rows")
class CancelledScoreRaises(ReferenceModel):
    def score(
        self,
        prompts: Sequence[str],
        continuations: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[RequestOptions],
    ) -> list[Score]:
        RequestClock(resolve_request(config, options, "score")).check()
        return super().score(prompts, continuations, config, **options)


@saboteur("batch-stream-eager", "batch_stream works at the call")
class BatchStreamEager(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        pairs: list[tuple[int, Token]] = []
        try:
            pairs.extend(super()._streamed(prompts, config))
        except Exception as error:  # noqa: BLE001 - raised where the reader is
            return _then(pairs, error)
        return iter(pairs)


def _then(pairs: Iterable[tuple[int, Token]], error: Exception) -> Iterator[tuple[int, Token]]:
    yield from pairs
    raise error


@saboteur("batch-stream-silent", "batch_stream does not say that a row has failed")
class BatchStreamSilent(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        yield from self.batch_class(self.engine, prompts, config).tokens()


@saboteur(
    "batch-stream-raises-first", "one row that fails ends batch_stream, and the other rows are lost"
)
class BatchStreamRaisesFirst(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        batch = self.batch_class(self.engine, prompts, config)
        if batch.errors:
            raise batch.errors[min(batch.errors)]
        yield from super()._streamed(prompts, config)


@saboteur("classify-iter-raises", "what is wrong with one prompt ends classify_iter")
class ClassifyIterRaises(ReferenceModel):
    def _classified(
        self, prompts: Iterator[str], config: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        for result in super()._classified(prompts, config):
            if result.error is not None:
                raise result.error
            yield result


class BeginsWhenRead(SubmittedStream):
    """A request whose worker starts with the first `next()`."""

    def __init__(self, stream: ReferenceStream, record: Record) -> None:
        TokenStreamBase.__init__(self)
        self._stream, self._record = stream, record
        self._begun, self._reason = False, None

    def next_token(self) -> Token:
        if not self._begun:
            self._begun = True
            super().__init__(self._stream, self._record)
        return super().next_token()

    def close(self) -> None:
        self._stream.close()
        if self._begun:
            super().close()
        self._reason = self._reason or "cancelled"


saboteur("submit-begins-when-read", "submit begins at the first next()")(BeginsWhenRead)


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


for _option in (Capability.SEED, Capability.LOGPROBS, Capability.LABELS, Capability.LOGITS):
    saboteur(
        f"others-take-{_option}",
        f"{_option} is not declared, and batch_stream, classify_iter and others drop it silently",
    )(partial(_Limited, _NotRefusing, {_option}))


# --------------------------------------------------------------------------- batch_generate alone

_BUT_BATCHES = EVERYTHING - {Capability.BATCH_GENERATE}


class _NeverStops(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, dataclasses.replace(config, stop=(), stop_tokens=()))


class _NeverStopping(ReferenceModel):
    batch_class = _NeverStops


class _SeenBefore(ReferenceModel):
    """Answers a batch that was asked before from a cache."""

    _seen: frozenset[object] = frozenset()

    def batch_generate(
        self, prompts: Sequence[str], config: Config = None, /, **options: Unpack[GenerateOptions]
    ) -> list[BatchResult]:
        """Return the results of a batch; from the cache, with the rows one place off."""
        results = super().batch_generate(prompts, config, **options)
        key = (*prompts, repr(resolve_generate(config, options)))
        if key in self._seen:
            return [*results[1:], *results[:1]]
        self._seen |= {key}
        return results


def _alone(model: type[ReferenceModel]) -> Callable[[], Backend]:
    return partial(_Limited, model, _BUT_BATCHES)


saboteur("lone-batch-never-stops", "batch_generate, all there is, ignores stops")(
    _alone(_NeverStopping)
)
saboteur(
    "lone-batch-remembers",
    "a batch that was asked before finds the rows of its cache one place off",
)(_alone(_SeenBefore))
