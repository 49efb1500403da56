"""Saboteurs that take calls which are wrong, or misread those which are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Unpack, cast

from core.errors import (
    OptionError,
    UnsupportedOptionError,
)
from core.options import ClassifyOptions, GenerateConfig, GenerateOptions
from core.protocols import TokenStream
from core.types import ClassifyResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream

_FIELDS = {field.name: field.default for field in fields(GenerateConfig)}
_SAMPLING = {
    *("generate", "chat", "submit", "batch_generate", "batch_stream", "classify", "classify_iter"),
}
Config = GenerateConfig | None


class OptionsMistaken(ReferenceModel):
    """A model that mistakes config and keywords on their way to the operation."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Return the config and the keywords that the operation gets instead."""
        raise NotImplementedError

    def resolve_request(self, operation: str, config: Config, options: Any) -> GenerateConfig:
        """Return the options of an operation that generates or classifies, mistaken."""
        if operation in _SAMPLING:
            config, options = self.mistaken(config, options)
        return super().resolve_request(operation, config, options)


@saboteur(
    "unknown-keywords-dropped",
    "an unknown keyword is dropped",
    kills={"errors.unknown-keyword", "batch.stream-call", "classify.stream-call"},
)
class UnknownKeywordsDropped(OptionsMistaken):
    """Takes the keywords it knows out of **kwargs, and does not look at the rest."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Return the config, and the keywords that are known."""
        return config, {name: options[name] for name in options if name in _FIELDS}


@saboteur(
    "any-field-as-keyword",
    "every operation takes the keywords of all",
    kills={"errors.foreign-keyword", "batch.stream-call", "classify.stream-call"},
)
class AnyFieldAsKeyword(OptionsMistaken):
    """Takes the fields of the config as keywords of every operation."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Puts keywords into the config without checking their operation."""
        known = {name: options[name] for name in options if name in _FIELDS}
        rest = {name: options[name] for name in options if name not in _FIELDS}
        if config is None:
            config = GenerateConfig()
        return self._joined(config, known), rest

    def _joined(self, config: object, known: dict[str, object]) -> Any:
        if isinstance(config, GenerateConfig):
            return replace(config, **cast("dict[str, Any]", known))
        return config  # of a wrong type: for others to say


@saboteur("dict-as-config", "a dict passes as a config", kills={"errors.config-type"})
class DictAsConfig(OptionsMistaken):
    """Takes a dict for a config, which is well meant."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Unpacks a dict into a config."""
        given: object = config
        return (GenerateConfig(**given) if isinstance(given, dict) else config), options


@saboteur("config-wins", "the config wins over keywords", kills={"errors.config"})
class ConfigWins(OptionsMistaken):
    """Joins config and keywords the wrong way round."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Leaves a keyword in only where the config has the default."""
        free = [name for name in options if getattr(config, name, None) == _FIELDS.get(name)]
        left = options if config is None else {name: options[name] for name in free}
        return config, left


@saboteur("config-dropped", "the config of generate() is not looked at", kills={"errors.config"})
class ConfigDropped(ReferenceModel):
    """Looks at keywords alone, and so is right for all who use these."""

    def resolve_request(self, operation: str, config: Config, options: Any) -> GenerateConfig:
        """Return the options of a request; in generate, of its keywords alone."""
        if operation == "generate" and isinstance(config, GenerateConfig):
            config = None
        return super().resolve_request(operation, config, options)


@saboteur(
    "foreign-fields-refused",
    "generate() refuses a config that carries labels",
    kills={"errors.config"},
)
class ForeignFieldsRefused(ReferenceModel):
    """Refuses a config that is made for both operations."""

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        """Makes a stream, and refuses a config with labels, which do not concern it."""
        if config.labels:
            raise UnsupportedOptionError("labels", self._backend)
        return super().stream(prompt, config)


@saboteur(
    "classify-stops",
    "classify() applies stop_tokens",
    kills={"errors.config"},
)
class ClassifyStops(ReferenceModel):
    """Sends both operations through one sampler, stop tokens included."""

    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Classifies, and leaves out the tokens at which generate would stop."""
        stops = config.stop_tokens if isinstance(config, GenerateConfig) else ()
        return [
            replace(row, token=None) if row.token and row.token.id in stops else row
            for row in super().classify(prompts, config, **options)
        ]


class FailedStream(ReferenceStream):
    """A stream that raises what was wrong with the call."""

    wrong: OptionError

    def generate(self, *arguments: object) -> Iterator[Token]:
        """Raises the error of the call."""
        raise self.wrong


@saboteur(
    "options-checked-late",
    "wrong options of generate() raise at the first next()",
    kills={"errors.option-values"},
)
class OptionsCheckedLate(ReferenceModel):
    """Makes the whole of generate() a generator function."""

    def generate(
        self, prompt: str, config: Config = None, /, **options: Unpack[GenerateOptions]
    ) -> TokenStream:
        """Returns a stream for wrong options too, which raises at its first token."""
        try:
            return super().generate(prompt, config, **options)
        except OptionError as error:
            stream = FailedStream(self.engine, prompt, GenerateConfig(), self.record)
            stream.wrong = error
            return stream


@saboteur(
    "sorts-in-place",
    "classify() sorts the caller's list",
    kills={
        "errors.inputs-unchanged",
        "classify.equal-prompts",
        "classify.stream",
        "labels.neighbours",
    },
)
class SortsInPlace(ReferenceModel):
    """Sorts the caller's own list, to batch prompts of similar length."""

    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Classifies rightly, and leaves the prompts in another order."""
        results = super().classify(prompts, config, **options)
        if isinstance(prompts, list):
            prompts.sort(key=len)
        return results


@saboteur(
    "string-as-prompts",
    "classify() takes one string for a list of characters",
    kills={"errors.prompt-types"},
)
class StringAsPrompts(ReferenceModel):
    """Takes a string, which is a sequence of strings, for the prompts."""

    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Classifies anything that can be iterated."""
        return super().classify(list(prompts), config, **options)
