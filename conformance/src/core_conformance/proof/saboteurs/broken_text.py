"""Saboteurs for which a text is a C string, or bytes, or whatever it was in their tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from core.errors import RequestError
from core.options import GenerateConfig
from core.protocols import TokenStream
from core.types import ClassifyResult, Score
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.labels import AsksOtherwise
from core_conformance.proof.saboteurs.stop import StopGeneration
from core_conformance.reference.engine import Engine
from core_conformance.reference.optional import ReferenceModel


@saboteur(
    "continuations-escape",
    "a continuation that is not Unicode raises what str.encode raises, for all pairs",
)
class ContinuationsEscape(ReferenceModel):
    def score(self, prompts: Any, continuations: Any, *config: Any, **options: Any) -> list[Score]:
        for text in continuations:
            text.encode()
        return super().score(prompts, continuations, *config, **options)


@saboteur("messages-escape", "a message that is not Unicode raises what str.encode raises")
class MessagesEscape(ReferenceModel):
    def chat(self, messages: Any, *config: Any, **options: Any) -> TokenStream:
        for message in messages:
            getattr(message, "content", "").encode()
        return super().chat(messages, *config, **options)


@saboteur(
    "labels-blame-the-prompt",
    "labels that are not Unicode raise, for all prompts, the error of a prompt that is not "
    "Unicode: so it was in mlx_cpu and llama_cpp at commit 77e22b6",
)
class LabelsBlameThePrompt(ReferenceModel):
    def classify(
        self, prompts: Sequence[str], *config: Any, **options: Any
    ) -> list[ClassifyResult]:
        for text in (*options.get("labels", ()), options.get("label_prefix", "")):
            if text.encode(errors="replace").decode() != text:
                raise RequestError("The prompt is not valid Unicode text.")
        return super().classify(prompts, *config, **options)


@saboteur("labels-lose-surrogates", "what is not Unicode is left out of labels")
class LabelsLoseSurrogates(ReferenceModel):
    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: Any
    ) -> GenerateConfig:
        if "labels" in options:
            options = options | {"labels": [_cleaned(label) for label in options["labels"]]}
        if "label_prefix" in options:
            options = options | {"label_prefix": _cleaned(options["label_prefix"])}
        return super().resolve_request(operation, config, options)


@saboteur("stops-lose-surrogates", "what is not Unicode is left out of stop strings")
class StopsLoseSurrogates(StopGeneration):
    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, map(_cleaned, stops)))


@saboteur("stops-end-at-nul", "a stop string is what stands before its NUL")
class StopsEndAtNul(StopGeneration):
    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, (stop.partition("\0")[0] for stop in stops)))


@saboteur("prompts-end-at-nul", "a prompt is what stands before its NUL")
class PromptsEndAtNul(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        return super().prompt_ids(prompt.partition("\0")[0] if "\0" in prompt[1:] else prompt)


@saboteur("controls-refused", "a prompt that holds a control character is refused")
class ControlsRefused(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        if any(char < " " and char not in "\0\t\r\n" for char in prompt):
            raise RequestError("The prompt cannot be printed.")
        return super().prompt_ids(prompt)


@saboteur("labels-end-at-nul", "a label is what stands before its NUL")
class LabelsEndAtNul(AsksOtherwise):
    def _labels(self, prompt: str, ids: list[int]) -> Any:
        labels = self.config.labels
        self.config = _with_labels(self.config, [label.partition("\0")[0] for label in labels])
        return super()._labels(prompt, ids)


@saboteur("labels-stripped", "labels are stripped of blanks")
class LabelsStripped(AsksOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"labels": tuple(dict.fromkeys(label.strip() for label in config.labels))}


def _cleaned(text: str) -> str:
    return text.encode(errors="ignore").decode()


def _with_labels(config: GenerateConfig, labels: Sequence[str]) -> GenerateConfig:
    """Return the config with other labels, equal ones among them."""
    changed = dataclasses.replace(config)
    object.__setattr__(changed, "labels", tuple(labels))
    return changed
