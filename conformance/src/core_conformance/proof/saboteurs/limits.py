"""Saboteurs of the context's end, of attention keys and of memory."""

from __future__ import annotations

import dataclasses
from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

from core.options import GenerateConfig
from core.types import AttentionSnapshot, MemoryReport
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import Engine, Generation
from core_conformance.reference.language import HEAD_DIM, Language
from core_conformance.reference.optional import ReferenceModel

Keys: TypeAlias = "tuple[tuple[array[float], ...], ...]"


@saboteur("context-is-no-end", "a generation continues past the context", {"context.length"})
class ContextIsNoEnd(Engine):
    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        return self.generation_class(self.prompt_ids(prompt), config, config.max_tokens)


@saboteur(
    "context-ends-early",
    "a generation ends when half the context is full",
    {"context.length"},
)
class ContextEndsEarly(Engine):
    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        row = super().generation(prompt, config)
        if not self._rotates:
            row.limit = min(row.limit, max(1, self.language.context_length // 2 - len(row.prompt)))
        return row


@saboteur(
    "rotate-ignored",
    'context_overflow="rotate" is taken and not honoured',
    {"context.rotate"},
)
class RotateIgnored(Engine):
    def generation(self, prompt: str, config: GenerateConfig) -> Generation:
        self._rotates = False
        return super().generation(prompt, config)


@saboteur(
    "rotation-takes-all",
    'with context_overflow="rotate" a prompt of any length is read',
    {"context.rotate-too-long"},
)
class RotationTakesAll(Engine):
    def check_length(self, length: int) -> None:
        if not self._rotates:
            super().check_length(length)


@saboteur("keys-of-one-head", "the keys of all heads lie in one array", {"inspection.sizes"})
class KeysOfOneHead(Language):
    def keys(self, ids: Sequence[int]) -> Keys:
        return tuple((sum(layer[1:], array("f", layer[0])),) for layer in super().keys(ids))


@saboteur("keys-without-bos", "the keys of the first token are missing", {"inspection.sizes"})
class KeysWithoutBos(ReferenceModel):
    def inspect_attention(self, prompt: str, *config: Any, **options: Any) -> AttentionSnapshot:
        seen = super().inspect_attention(prompt, *config, **options)
        keys = tuple(tuple(head[HEAD_DIM:] for head in layer) for layer in seen.keys)
        return dataclasses.replace(seen, seq_len=seen.seq_len - 1, keys=keys)


@saboteur(
    "keys-see-the-future",
    "the keys of a token depend on what comes after it",
    {"inspection.prefix"},
)
class KeysSeeTheFuture(Language):
    def keys(self, ids: Sequence[int]) -> Keys:
        backwards = super().keys(ids[::-1])
        return tuple(tuple(head[::-1] for head in layer) for layer in backwards)


@saboteur(
    "peak-for-good",
    "reset_peak_memory() leaves the peak as it is",
    {"memory.report"},
)
class PeakForGood(ReferenceModel):
    def reset_peak_memory(self) -> None:
        self.check_open()


@saboteur(
    "peak-forgotten",
    "after reset_peak_memory() the peak is 0 and stays so",
    {"memory.report", "lifecycle.use-after-close"},
)
class PeakForgotten(ReferenceModel):
    forgotten = False

    def reset_peak_memory(self) -> None:
        self.forgotten = True

    def memory(self) -> MemoryReport:
        report = super().memory()
        return dataclasses.replace(report, peak_bytes=0) if self.forgotten else report


@saboteur(
    "rotation-drops-early",
    'with context_overflow="rotate" the oldest positions are dropped when half the context is full',
    {"context.rotate"},
)
class RotationDropsEarly(Engine):
    def forward(self, rows: Sequence[Sequence[int]]) -> list[array[float]]:
        most = self.language.context_length
        half = most // 2 if self._rotates else most
        return super().forward([row[-half:] for row in rows])
