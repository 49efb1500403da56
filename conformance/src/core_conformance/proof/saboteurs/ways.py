"""Saboteurs that break one way in alone: the clauses over the table of ways must notice."""

from __future__ import annotations

import dataclasses
import os
import threading
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from core.errors import PromptTooLongError
from core.options import GenerateConfig
from core.protocols import TextModel, TokenStream
from core.token_ids import TokenIds
from core.types import (
    AttentionSnapshot,
    ClassifyResult,
    Conversation,
    GenerateMetrics,
    HiddenResult,
    Message,
    Score,
    Token,
    TokenSequence,
)
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


def _without_returns(text: str) -> str:
    return text.replace("\r\n", "\n")


@saboteur("assistant-lines", "chat reads CR LF in what the assistant said as LF")
class AssistantLines(ReferenceModel):
    def do_chat(self, messages: Conversation, request: GenerateConfig) -> TokenStream:
        changed = [
            Message(message.role, _without_returns(message.content))
            if isinstance(message, Message) and message.role == "assistant"
            else message
            for message in messages
        ]
        return super().do_chat(changed, request)


@saboteur("score-lines", "score reads CR LF in a continuation as LF")
class ScoreLines(ReferenceModel):
    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        return super().do_score(prompts, [*map(_without_returns, continuations)], request)


@saboteur("states-end-at-nul", "hidden_states reads a prompt up to its NUL")
class StatesEndAtNul(ReferenceModel):
    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        heads = [prompt.partition("\0")[0] or prompt for prompt in prompts]
        return super().do_hidden_states(heads, request, layers)


@saboteur("long-ids-drop-seed", "stream_tokens draws without the seed after 33 tokens and more")
class LongIdsDropSeed(ReferenceModel):
    def do_stream_tokens(self, prompt: Sequence[int], request: GenerateConfig) -> TokenStream:
        if len(prompt) >= 33:
            request = dataclasses.replace(request, seed=None)
        return super().do_stream_tokens(prompt, request)


@saboteur("many-ids-swapped", "generate_tokens of more than 16 rows swaps the last two")
class ManyIdsSwapped(ReferenceModel):
    def do_generate_tokens(
        self,
        prompts: TokenIds,
        request: GenerateConfig,
        attention_mask: TokenIds | None,
        num_samples: int,
    ) -> list[TokenSequence]:
        rows = super().do_generate_tokens(prompts, request, attention_mask, num_samples)
        return rows if len(rows) <= 16 else [*rows[:-2], *rows[:-3:-1]]


@saboteur("states-share-errors", "hidden_states gives every row that fails the error of the first")
class StatesShareErrors(ReferenceModel):
    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        results = super().do_hidden_states(prompts, request, layers)
        first = next((result for result in results if result.error is not None), None)
        return [result if result.error is None else first or result for result in results]


@saboteur("keys-of-less", "inspect_attention refuses a prompt that fills the context")
class KeysOfLess(ReferenceModel):
    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        length, limit = len(self.encode(prompt)), self.info.context_length
        if prompt and length == limit:
            raise PromptTooLongError(length + 1, limit)
        return super().do_inspect_attention(prompt, request)


@saboteur("submit-rotates-past-stops", "submit looks for no stop string where the context rotates")
class SubmitRotatesPastStops(ReferenceModel):
    def do_submit(self, prompt: str, request: GenerateConfig) -> TokenStream:
        if self.config.context_overflow == "rotate":
            request = dataclasses.replace(request, stop=())
        return super().do_submit(prompt, request)


@saboteur("one-stop-a-letter", "batch_stream takes one stop string for each first letter")
class OneStopALetter(ReferenceModel):
    def do_batch_stream(
        self, prompts: Sequence[str], request: GenerateConfig
    ) -> Iterator[tuple[int, Token]]:
        stops = tuple({stop[0]: stop for stop in request.stop}.values())
        return super().do_batch_stream(prompts, dataclasses.replace(request, stop=stops))


@saboteur("adapters-by-path", "with_adapter reads a path once")
class AdaptersByPath(ReferenceModel):
    def with_adapter(self, path: str | os.PathLike[str] | None, /) -> TextModel:
        known: dict[str, Any] = self.__dict__.setdefault("_known", {})
        handle: Any = super().with_adapter(path)
        if path is not None:
            handle.take_bias(known.setdefault(os.fspath(path), handle.engine.language.bias))
        return handle  # type: ignore[no-any-return]


@saboteur(
    "states-after-wrong-options",
    "hidden_states gives other states after an option that another thread spelled wrong",
)
class StatesAfterWrongOptions(ReferenceModel):
    _shift = 0.0

    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: Any
    ) -> GenerateConfig:
        if "no_such_option" in options and threading.current_thread().name.startswith("Thread-"):
            self._shift = 1.0
        return super().resolve_request(operation, config, options)

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        return [
            result
            if result.states is None
            else HiddenResult(result.layers, array("f", [n + self._shift for n in result.states]))
            for result in super().do_hidden_states(prompts, request, layers)
        ]


@saboteur("ids-uncounted", "generate_tokens leaves the metrics as they were")
class IdsUncounted(ReferenceModel):
    _counts = True

    def record(self, metrics: GenerateMetrics) -> None:
        if self._counts:
            super().record(metrics)

    def do_generate_tokens(self, *arguments: Any) -> list[TokenSequence]:
        self._counts = False
        try:
            return super().do_generate_tokens(*arguments)
        finally:
            self._counts = True


@saboteur("ids-drop-min-p", "stream_tokens does not look at min_p")
class IdsDropMinP(ReferenceModel):
    def do_stream_tokens(self, prompt: Sequence[int], request: GenerateConfig) -> TokenStream:
        return super().do_stream_tokens(prompt, dataclasses.replace(request, min_p=0.0))


@saboteur("awaited-drops-top-k", "a call that is awaited drops top_k")
class AwaitedDropsTopK(ReferenceModel):
    async def call_async(
        self, operation: str, /, *arguments: object, **options: object
    ) -> tuple[object, GenerateMetrics]:
        options.pop("top_k", None)
        return await super().call_async(operation, *arguments, **options)


@saboteur(
    "labels-without-case-in-streams", "classify_iter gives labels that differ in case one logprob"
)
class LabelsWithoutCase(ReferenceModel):
    def do_classify_iter(
        self, prompts: Iterable[str], request: GenerateConfig
    ) -> Iterator[ClassifyResult]:
        for result in super().do_classify_iter(prompts, request):
            known = result.logprobs or {}
            shared = {label: known.get(label.lower(), value) for label, value in known.items()}
            yield dataclasses.replace(result, logprobs=shared or result.logprobs)


@saboteur("duplicate-labels-dropped", "classify_iter takes labels of which two are the same")
class DuplicateLabelsDropped(ReferenceModel):
    def resolve_request(
        self, operation: str, config: GenerateConfig | None, options: Any
    ) -> GenerateConfig:
        if operation == "classify_iter" and options.get("labels"):
            options = {**options, "labels": tuple(dict.fromkeys(options["labels"]))}
        return super().resolve_request(operation, config, options)
