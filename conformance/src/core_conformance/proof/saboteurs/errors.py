"""Saboteurs of errors: of options, of prompts, and of what hardly fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any, Unpack, cast

from core.errors import (
    EmptyPromptError,
    OptionError,
    PromptTooLongError,
    RequestError,
)
from core.kit.base import RequestClock
from core.options import ClassifyOptions, GenerateConfig
from core.protocols import TokenStream
from core.types import ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.classification import Classifier
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream
from core_conformance.reference.vocabulary import encode

_FIELDS = {field.name: field.default for field in fields(GenerateConfig)}
_SAMPLING = {
    *("generate", "chat", "submit", "batch_generate", "batch_stream", "classify", "classify_iter"),
}
Config = GenerateConfig | None


class OptionsMistaken(ReferenceModel):
    """A model that mistakes config and keywords on their way to the operation."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        raise NotImplementedError

    def resolve_request(self, operation: str, config: Config, options: Any) -> GenerateConfig:
        if operation in _SAMPLING:
            config, options = self.mistaken(config, options)
        return super().resolve_request(operation, config, options)


@saboteur("unknown-keywords-dropped", "an unknown keyword is dropped")
class UnknownKeywordsDropped(OptionsMistaken):
    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        return config, {name: options[name] for name in options if name in _FIELDS}


@saboteur("any-field-as-keyword", "every operation takes the keywords of all")
class AnyFieldAsKeyword(OptionsMistaken):
    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        known = {name: options[name] for name in options if name in _FIELDS}
        rest = {name: options[name] for name in options if name not in _FIELDS}
        if config is None:
            config = GenerateConfig()
        return self._joined(config, known), rest

    def _joined(self, config: object, known: dict[str, object]) -> Any:
        if isinstance(config, GenerateConfig):
            return replace(config, **cast("dict[str, Any]", known))
        return config  # of a wrong type: for others to say


@saboteur("dict-as-config", "a dict passes as a config")
class DictAsConfig(OptionsMistaken):
    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        given: object = config
        return (GenerateConfig(**given) if isinstance(given, dict) else config), options


@saboteur("config-wins", "the config wins over keywords")
class ConfigWins(OptionsMistaken):
    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        free = [name for name in options if getattr(config, name, None) == _FIELDS.get(name)]
        left = options if config is None else {name: options[name] for name in free}
        return config, left


@saboteur("config-dropped", "the config of generate() is not looked at")
class ConfigDropped(ReferenceModel):
    def resolve_request(self, operation: str, config: Config, options: Any) -> GenerateConfig:
        if operation == "generate" and isinstance(config, GenerateConfig):
            config = None
        return super().resolve_request(operation, config, options)


@saboteur("classify-stops", "classify() applies stop_tokens")
class ClassifyStops(ReferenceModel):
    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        stops = config.stop_tokens if isinstance(config, GenerateConfig) else ()
        return [
            replace(row, token=None) if row.token and row.token.id in stops else row
            for row in super().classify(prompts, config, **options)
        ]


class FailedStream(ReferenceStream):
    """A stream that raises what was wrong with the call."""

    wrong: OptionError

    def generate(self, *arguments: object) -> Iterator[Token]:
        raise self.wrong


@saboteur("options-checked-late", "wrong options of generate() raise at the first next()")
class OptionsCheckedLate(ReferenceModel):
    def generate(self, prompt: str, *config: Any, **options: Any) -> TokenStream:
        try:
            return super().generate(prompt, *config, **options)
        except OptionError as error:
            stream = FailedStream(self.engine, prompt, GenerateConfig(), self.record)
            stream.wrong = error
            return stream


@saboteur("sorts-in-place", "classify() sorts the caller's list")
class SortsInPlace(ReferenceModel):
    def classify(
        self, prompts: Sequence[str], *config: Any, **options: Any
    ) -> list[ClassifyResult]:
        results = super().classify(prompts, *config, **options)
        if isinstance(prompts, list):
            prompts.sort(key=len)
        return results


@saboteur("string-as-prompts", "classify() takes one string for a list of characters")
class StringAsPrompts(ReferenceModel):
    def classify(
        self, prompts: Sequence[str], *config: Any, **options: Any
    ) -> list[ClassifyResult]:
        return super().classify(list(prompts), *config, **options)


@saboteur("lengths-swapped", "PromptTooLongError has its two numbers in the wrong order")
class LengthsSwapped(Engine):
    def check_length(self, length: int) -> None:
        try:
            super().check_length(length)
        except PromptTooLongError as error:
            raise PromptTooLongError(error.limit, error.length) from None


@saboteur("empty-prompt-begins", "an empty prompt is continued from BOS alone")
class EmptyPromptBegins(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        try:
            return super().prompt_ids(prompt)
        except EmptyPromptError:
            return encode(prompt)


@saboteur("surrogate-escapes", "a lone surrogate raises what str.encode raises")
class SurrogateEscapes(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        try:
            return super().prompt_ids(prompt)
        except RequestError:
            prompt.encode()
            raise


_ROOM = 40  # characters


@saboteur("timeout-from-the-call", "the timeout of a stream runs from its call, before it is read")
class TimeoutFromTheCall(ReferenceStream):
    def __init__(self, engine: Engine, prompt: str, config: GenerateConfig, record: Any) -> None:
        super().__init__(engine, prompt, config, record)
        self._called = RequestClock(config)

    def _check(self, row: Generation) -> None:
        super()._check(row)
        self._called.check()


@saboteur(
    "labels-without-room-are-closed",
    "a label without room after its prompt is an error of another kind",
)
class LabelsWithoutRoomAreClosed(Classifier):
    def check_labels(self, length: int) -> None:
        if length > self._engine.language.context_length:
            raise RequestError("The context is full.")


@saboteur("scores-cut-left", "what does not fit the context is scored with its beginning cut off")
class ScoresCutLeft(ReferenceModel):
    def score(
        self, prompts: Sequence[str], continuations: Sequence[str], *config: Any, **options: Any
    ) -> list[Score]:
        whole = super().score(prompts, continuations, *config, **options)
        heads, tails = ([text[-_ROOM:] for text in texts] for texts in (prompts, continuations))
        cut = super().score(heads, tails, *config, **options)
        return [
            other if isinstance(one.error, PromptTooLongError) else one
            for one, other in zip(whole, cut, strict=True)
        ]


@saboteur("seed-of-ones", "the seed 2**32 - 1 stands for none")
class SeedOfOnes(Generation):
    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        if config.seed == 2**32 - 1:
            self.random = Random()


@saboteur("failed-rows-count", "a row that was refused counts as a token read")
class FailedRowsCount(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, config)
        self.meter.prompt_tokens += len(self.errors)


@saboteur("labels-lost-after-errors", "after a row that failed, no labels are looked at")
class LabelsLostBehindErrors(Classifier):
    def read(self, prompts: Sequence[str]) -> list[ClassifyResult]:
        results = super().read(prompts)
        if not any(result.error for result in results):
            return results
        return [ClassifyResult(result.token, error=result.error) for result in results]
