"""Saboteurs of details that a promise names: which error, which reason, which position."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Iterator, Sequence
from typing import Any

from core.options import GenerateConfig
from core.types import AttentionSnapshot, BatchResult, Choice, Token, TokenSequence
from core_conformance.proof.registry import saboteur
from core_conformance.reference.batch import Batch
from core_conformance.reference.language import HEAD_DIM, NUM_HEADS, NUM_LAYERS, Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.weights import numbers


@saboteur("batch-stream-raises-last", "batch_stream raises the error of the last row that failed")
class BatchStreamRaisesLast(ReferenceModel):
    def _streamed(self, prompts: list[str], config: GenerateConfig) -> Iterator[tuple[int, Token]]:
        batch = self.batch_class(self.engine, prompts, config)
        yield from batch.tokens()
        if batch.errors:
            raise batch.errors[max(batch.errors)]


@saboteur(
    "cancelled-rows-are-errors",
    'the rows of a batch that was cancelled have the finish_reason "error"',
)
class CancelledRowsAreErrors(Batch):
    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        result = super()._result(row, tokens)
        return dataclasses.replace(result, finish_reason="error") if result.error else result


@saboteur("keys-before-rope", "a key depends on its token alone")
class KeysBeforeRope(Language):
    def keys(self, ids: Sequence[int]) -> tuple[tuple[array[float], ...], ...]:
        return tuple(
            tuple(
                array("f", [x for id in ids for x in numbers((layer, head, id), HEAD_DIM)])
                for head in range(NUM_HEADS)
            )
            for layer in range(NUM_LAYERS)
        )


@saboteur("no-device-chosen", "choices() leaves the device out")
class NoDeviceChosen(ReferenceModel):
    def choices(self) -> tuple[Choice, ...]:
        return (Choice("dtype", "float32", "the only one"),)


@saboteur(
    "sequences-without-logprobs",
    "generate_tokens gives each sequence the logprob of its last token alone",
)
class SequencesWithoutLogprobs(ReferenceModel):
    def do_generate_tokens(self, *arguments: Any) -> list[TokenSequence]:
        return [
            dataclasses.replace(sequence, logprobs=sequence.logprobs[-1:])
            for sequence in super().do_generate_tokens(*arguments)
        ]


@saboteur(
    "long-prompts-are-inspected-in-part",
    "inspect_attention cuts a prompt that the context does not hold",
)
class LongPromptsAreInspectedInPart(ReferenceModel):
    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        return super().do_inspect_attention(prompt[: self.info.context_length // 2], request)
