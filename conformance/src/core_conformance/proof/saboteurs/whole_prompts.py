"""Saboteurs that do not read a prompt to its end, or not as what it is."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import replace

from core.options import GenerateConfig
from core.types import AttentionSnapshot, HiddenResult
from core_conformance.proof.registry import saboteur
from core_conformance.reference.engine import PREFILL_CHUNK
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.sentences import Embedding


@saboteur("keys-of-chunks", "every chunk's keys are computed as if nothing stood before it")
class KeysOfChunks(ReferenceModel):
    """Forgets a chunk when it reads the next."""

    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        """Return the keys of each chunk, one after another."""
        seen = super().do_inspect_attention(prompt, request)
        ids = self.engine.prompt_ids(prompt)
        starts = range(0, len(ids), PREFILL_CHUNK)
        parts = [self.engine.language.keys(ids[at : at + PREFILL_CHUNK]) for at in starts]
        keys = tuple(
            tuple(
                sum((part[layer][head] for part in parts), array("f"))
                for head in range(seen.num_heads)
            )
            for layer in range(seen.num_layers)
        )
        return replace(seen, keys=keys)


@saboteur("hidden-states-of-plain-text", "hidden_states reads a rendered chat as plain text")
class HiddenStatesOfPlainText(ReferenceModel):
    """Makes strings of its prompts."""

    def do_hidden_states(
        self, prompts: Sequence[str], request: GenerateConfig, layers: Sequence[int]
    ) -> list[HiddenResult]:
        """Return the states of plain texts."""
        return super().do_hidden_states([*map(str, prompts)], request, layers)


@saboteur("sentences-cut", "a text counts in its embedding up to its 256th token")
class SentencesCut(Embedding):
    """Reads as far as it was trained to."""

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        """Return the embedding of the first ids."""
        return super().state(ids[:256], layer)
