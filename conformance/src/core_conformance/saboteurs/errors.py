"""Saboteurs that take calls which are wrong, or misread those which are right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Unpack, cast

from core.capability import Capability
from core.errors import (
    OptionError,
    UnsupportedOptionError,
)
from core.options import ClassifyOptions, GenerateConfig, GenerateOptions
from core.protocols import TokenStream
from core.types import ClassifyResult, Token
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.stream import ReferenceStream
from core_conformance.saboteur import saboteur

_FIELDS = {field.name: field.default for field in fields(GenerateConfig)}
Config = GenerateConfig | None


class OptionsMistaken(ReferenceModel):
    """Something happens to config and keywords on their way."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """What becomes of them."""
        raise NotImplementedError

    def checked(
        self, operation: Capability, config: Config, options: GenerateOptions
    ) -> GenerateConfig:
        """Of what generates."""
        return super().checked(operation, *self.mistaken(config, options))

    def checked_classify(
        self, operation: Capability, config: Config, options: ClassifyOptions
    ) -> GenerateConfig:
        """Of what classifies."""
        return super().checked_classify(operation, *self.mistaken(config, options))


@saboteur(
    "unknown-keywords-dropped",
    "a keyword that nobody knows is dropped",
    kills={"errors.unknown-keyword", "batch.stream-call", "classify.stream-call"},
)
class UnknownKeywordsDropped(OptionsMistaken):
    """As **kwargs are by who does not look at the rest of them."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Known ones only."""
        return config, {name: options[name] for name in options if name in _FIELDS}


@saboteur(
    "any-field-as-keyword",
    "every operation takes the keywords of all",
    kills={"errors.foreign-keyword", "batch.stream-call", "classify.stream-call"},
)
class AnyFieldAsKeyword(OptionsMistaken):
    """One config, one set of keywords."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Into the config, where nobody asks which operation it is for."""
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
    """Well meant."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Unpacked."""
        given: object = config
        return (GenerateConfig(**given) if isinstance(given, dict) else config), options


@saboteur("config-wins", "the config wins over keywords", kills={"errors.keywords-win"})
class ConfigWins(OptionsMistaken):
    """The wrong way round."""

    def mistaken(self, config: Config, options: Mapping[str, object]) -> tuple[Config, Any]:
        """Keywords count for what the config leaves open."""
        free = [name for name in options if getattr(config, name, None) == _FIELDS.get(name)]
        left = options if config is None else {name: options[name] for name in free}
        return config, left


@saboteur(
    "config-dropped", "the config of generate() is not looked at", kills={"errors.config-counts"}
)
class ConfigDropped(ReferenceModel):
    """Works for all who use keywords."""

    def checked(
        self, operation: Capability, config: Config, options: GenerateOptions
    ) -> GenerateConfig:
        """Keywords only."""
        if operation is Capability.GENERATE and isinstance(config, GenerateConfig):
            config = None
        return super().checked(operation, config, options)


@saboteur(
    "foreign-fields-refused",
    "generate() refuses a config that carries labels",
    kills={"errors.foreign-fields"},
)
class ForeignFieldsRefused(ReferenceModel):
    """One config for both operations cannot be made."""

    def stream(self, prompt: str, config: GenerateConfig) -> ReferenceStream:
        """Looks at all fields."""
        if config.labels:
            raise UnsupportedOptionError("labels", self._backend)
        return super().stream(prompt, config)


@saboteur(
    "classify-stops",
    "classify() applies stop_tokens",
    kills={"errors.foreign-fields"},
)
class ClassifyStops(ReferenceModel):
    """One way through sampling for both."""

    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Without the tokens to stop at."""
        stops = config.stop_tokens if isinstance(config, GenerateConfig) else ()
        return [
            replace(row, token=None) if row.token and row.token.id in stops else row
            for row in super().classify(prompts, config, **options)
        ]


class FailedStream(ReferenceStream):
    """Raises what is wrong with the call."""

    wrong: OptionError

    def generate(self, *arguments: object) -> Iterator[Token]:
        """Raises."""
        raise self.wrong


@saboteur(
    "options-checked-late",
    "wrong options of generate() raise at the first next()",
    kills={"errors.option-values"},
)
class OptionsCheckedLate(ReferenceModel):
    """The whole of generate() is a generator function."""

    def generate(
        self, prompt: str, config: Config = None, /, **options: Unpack[GenerateOptions]
    ) -> TokenStream:
        """Does not raise `OptionError`."""
        try:
            return super().generate(prompt, config, **options)
        except OptionError as error:
            stream = FailedStream(self.engine, prompt, GenerateConfig(), self.record)
            stream.wrong = error
            return stream


@saboteur(
    "sorts-in-place",
    "classify() sorts the caller's list",
    kills={"errors.inputs-unchanged", "classify.stream", "labels.neighbours"},
)
class SortsInPlace(ReferenceModel):
    """To have prompts of like length side by side."""

    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """The results are right."""
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
    """A string is a sequence of strings."""

    def classify(
        self,
        prompts: Sequence[str],
        config: Config = None,
        /,
        **options: Unpack[ClassifyOptions],
    ) -> list[ClassifyResult]:
        """Anything that can be iterated."""
        return super().classify(list(prompts), config, **options)
