"""Saboteurs of batches, chats and submitted requests."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

from core.capability import Capability
from core.chat import RenderedPrompt
from core.options import GenerateConfig, GenerateOptions
from core.protocols import TokenStream
from core.types import BatchResult, Message, Token
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine
from core_conformance.reference.generation import Generation
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.submitted import SubmittedStream
from core_conformance.saboteur import saboteur

EATS = {"chat.answers", "errors.inputs-unchanged"}
MIXED_UP = {
    "batch.equals-generate",
    "batch.error-rows",
    "batch.many",
    "batch.order",
    "batch.seeded",
    "batch.stop",
    "batch.stream",
    "errors.empty-prompt",
    "errors.lone-surrogate",
    "errors.too-long-rows",
}


@saboteur("tokens-in-a-list", "a BatchResult holds a list", {"batch.results"})
class TokensInAList(Batch):
    def results(self) -> list[BatchResult]:
        lists: Any = [(result, list(result.tokens)) for result in super().results()]
        return [dataclasses.replace(result, tokens=tokens) for result, tokens in lists]


@saboteur("batch-of-nothing", "batch_generate fails on an empty batch", {"batch.empty"})
class BatchOfNothing(Batch):
    def results(self) -> list[BatchResult]:
        max(row.limit for row in self.rows.values())
        return super().results()


@saboteur("as-they-finish", "results come in the order in which rows end", MIXED_UP)
class AsTheyFinish(Batch):
    def results(self) -> list[BatchResult]:
        return sorted(super().results(), key=lambda result: len(result.text))


@saboteur(
    "rows-see-each-other",
    "a row's last token is also read by the row behind it",
    {
        "batch.equals-generate",
        "batch.many",
        "batch.order",
        "batch.seeded",
        "batch.stop",
        "batch.options",
        "batch.stream-options",
    },
)
class RowsSeeEachOther(Engine):
    def step(self, rows: Sequence[Generation], meter: Meter) -> list[list[Token]]:
        for before, row in itertools.pairwise(rows):
            row.context[0:0] = before.context[-1:]
        return super().step(rows, meter)


@saboteur(
    "slot-not-cleared",
    "a row that gets another's slot still sees its last token",
    {"batch.many", "batch.equals-generate", "batch.order", "batch.seeded", "batch.stop"},
)
class SlotNotCleared(Batch):
    def _prefilled(self, row: int) -> list[int]:
        ended = [r for r, each in self.rows.items() if each.reason is not None and r < row]
        if ended:
            self.rows[row].context.extend(self.rows[ended[0]].context[-1:])
        return super()._prefilled(row)


@saboteur(
    "stop-not-in-batches",
    "batch_generate looks neither at stop nor at stop_tokens",
    {"batch.stop", "batch.options", "batch.stops", "batch.stream-options"},
)
class StopNotInBatches(Batch):
    def __init__(self, engine: Engine, prompts: Sequence[str], config: GenerateConfig) -> None:
        super().__init__(engine, prompts, dataclasses.replace(config, stop=(), stop_tokens=()))


@saboteur(
    "error-is-stop",
    'a row that failed says finish_reason "stop"',
    {"batch.error-rows", "cancel.timeout-rows"},
)
class ErrorIsStop(Batch):
    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        result = super()._result(row, tokens)
        failed = result.finish_reason == "error"
        return dataclasses.replace(result, finish_reason="stop") if failed else result


@saboteur(
    "rows-renumbered",
    "batch_stream counts rows by when they began",
    {"batch.stream", "batch.stream-errors"},
)
class RowsRenumbered(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        yield from super()._streamed(sorted(prompts, key=len), config)


@saboteur(
    "turns-are-merged",
    "chat fails on messages of the assistant",
    {"chat.answers", "chat.content", "chat.equals-generate", "errors.prompt-types"},
)
class TurnsAreMerged(ReferenceModel):
    def rendered(self, messages: Sequence[Message]) -> RenderedPrompt:
        if any(message.role == "assistant" for message in messages):
            raise KeyError("assistant")
        return super().rendered(messages)


@saboteur("chat-eats-messages", "chat empties the list of messages", EATS)
class ChatEatsMessages(ReferenceModel):
    def chat(
        self,
        messages: Sequence[Message],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        stream = super().chat(messages, config, **options)
        if isinstance(messages, list):
            messages.clear()
        return stream


@saboteur("system-dropped", "system messages are left out", {"chat.system", "errors.prompt-types"})
class SystemDropped(ReferenceModel):
    def rendered(self, messages: Sequence[Message]) -> RenderedPrompt:
        return super().rendered([m for m in messages if m.role != "system"])


@saboteur(
    "last-turn-only", "chat answers the last message alone", {"chat.content", "errors.prompt-types"}
)
class LastTurnOnly(ReferenceModel):
    def rendered(self, messages: Sequence[Message]) -> RenderedPrompt:
        system = [m for m in messages if m.role == "system"]
        return super().rendered([*system, *messages[-1:]])


@saboteur("chat-has-two-bos", "chat begins with two BOS", {"chat.equals-generate", "chat.options"})
class ChatHasTwoBos(ReferenceModel):
    def chat(
        self,
        messages: Sequence[Message],
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[GenerateOptions],
    ) -> TokenStream:
        request = self.checked(Capability.CHAT, config, options)
        prompt = self.rendered(messages)
        return self.stream(RenderedPrompt("<s>" + prompt.marked, prompt.marker), request)


@saboteur(
    "submit-ignores-max-tokens",
    "submit generates one token less than max_tokens",
    {"submitting.equals-generate", "concurrency.submit", "submitting.options"},
)
class SubmitIgnoresMaxTokens(ReferenceModel):
    def submit(self, prompt: str, config: GenerateConfig | None = None, /) -> TokenStream:
        asked = config or GenerateConfig()
        less = max(1, asked.max_tokens - 1)
        return super().submit(prompt, dataclasses.replace(asked, max_tokens=less))


_open: list[SubmittedStream] = []


@saboteur("close-closes-all", "closing one submitted request closes all", {"submitting.close"})
class CloseClosesAll(SubmittedStream):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        _open.append(self)

    def close(self) -> None:
        streams = [*_open]
        _open.clear()
        for stream in streams:
            SubmittedStream.close(stream)
