"""Saboteurs that keep too much, or too little, of prompts: their text, their chunks, their ids."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Sequence
from types import SimpleNamespace

from core.errors import RequestError
from core.kit.chat import RenderedPrompt
from core.kit.labels import common_length
from core.options import GenerateConfig, LoadConfig
from core.protocols import TextModel
from core.types import AttentionSnapshot, Score
from core_conformance.proof.registry import saboteur
from core_conformance.reference import files
from core_conformance.reference.backend import Reference
from core_conformance.reference.engine import PREFILL_CHUNK, Engine, Generation, GivenIds
from core_conformance.reference.language import Language
from core_conformance.reference.meter import Meter
from core_conformance.reference.optional import ReferenceModel

_LARGE = 256  # tokens of a chunk
_Path = str | os.PathLike[str]


@saboteur(
    "ids-kept-by-text",
    "a rendered prompt gets the ids of a plain one with its text, if that came first",
)
class IdsKeptByText(Engine):
    """Keeps the ids of recent prompts by their text, to which both are equal."""

    def prompt_ids(self, prompt: str) -> list[int]:
        """Return the ids of the first prompt with this text."""
        if isinstance(prompt, GivenIds):
            return super().prompt_ids(prompt)
        known = self.__dict__.setdefault("known", {})
        if prompt not in known:
            known[prompt] = super().prompt_ids(prompt)
        return list(known[prompt])


@saboteur("attention-of-plain-text", "inspect_attention reads a rendered prompt as plain text")
class AttentionOfPlainText(ReferenceModel):
    """Turns a prompt into a string before it is read."""

    def do_inspect_attention(self, prompt: str, request: GenerateConfig) -> AttentionSnapshot:
        """Return the keys of the text."""
        return super().do_inspect_attention(str.__str__(prompt), request)


@saboteur(
    "score-reads-special-tokens",
    "a special token spelled in a continuation of score is read as special after a rendered prompt",
)
class ScoreReadsSpecialTokens(ReferenceModel):
    """Tokenizes prompt and continuation as one text of the template's."""

    def do_score(
        self, prompts: Sequence[str], continuations: Sequence[str], request: GenerateConfig
    ) -> list[Score]:
        """Score ids in which every spelling of a special token is special."""
        pairs = list(zip(prompts, continuations, strict=True))
        if not all(isinstance(prompt, RenderedPrompt) for prompt in prompts):
            return super().do_score(prompts, continuations, request)
        heads = [self.encode(prompt) for prompt, _ in pairs]
        wholes = [self.encode(RenderedPrompt(prompt + text)) for prompt, text in pairs]
        tails = [whole[len(head) :] for head, whole in zip(heads, wholes, strict=True)]
        return super().do_score_tokens(heads, tails, request)


@saboteur(
    "cancelled-chunk-counts-as-read",
    "a chunk whose reading was cancelled counts as read for the next prompt that begins alike",
)
class CancelledChunkCountsAsRead(Engine):
    """Notes a chunk before it is read, and skips what was noted."""

    left: tuple[int, tuple[int, ...]] | None = None

    def prefill(self, row: Generation, meter: Meter) -> None:
        """Read the prompt without the chunk that was noted last."""
        left, self.left = self.left, None
        if left is not None:
            start, prompt = left
            end = start + PREFILL_CHUNK
            if row.prompt[:end] == prompt[:end] and len(row.prompt) > end:
                meter.prompt_tokens += len(row.prompt)
                self.check(row)
                row.context.extend(row.prompt[:start] + row.prompt[end:])
                return
        try:
            super().prefill(row, meter)
        except RequestError:
            self.left = len(row.context), row.prompt
            raise


@saboteur(
    "cached-tokens-do-not-count",
    "prompt_tokens leaves out whole chunks that the prompt before had as well",
)
class CachedTokensDoNotCount(Engine):
    """Counts what it computes."""

    last: tuple[int, ...] = ()

    def prefill(self, row: Generation, meter: Meter) -> None:
        """Count the tokens after the chunks that are cached."""
        super().prefill(row, meter)
        meter.prompt_tokens -= common_length(self.last, row.prompt) // PREFILL_CHUNK * PREFILL_CHUNK
        self.last = row.prompt


@saboteur(
    "chunk-of-one-token-dropped",
    "the last chunk of a long prompt is dropped if it is a single token",
)
class ChunkOfOneTokenDropped(Generation):
    """Leaves the last token for a step, which a prompt of whole chunks does not need."""

    def chunks(self) -> Iterable[Sequence[int]]:
        """Return the chunks of a prompt without a last one of one token."""
        pieces = list(super().chunks())
        short = len(self.prompt) > _LARGE and len(self.prompt) % _LARGE == 1
        return pieces[:-1] if short else pieces


@saboteur(
    "states-of-the-last-chunk", "the hidden state of a long prompt is that of its last chunk alone"
)
class StatesOfTheLastChunk(Language):
    """Reads the prompt in chunks, and each from its own beginning."""

    __slots__ = ()

    def state(self, ids: Sequence[int], layer: int) -> array[float]:
        """Return the state after the last tokens."""
        return Language.state(self, ids[-_LARGE:], layer)


_read = SimpleNamespace(known={})


def _kept(path: _Path) -> dict[int, float]:
    place = os.path.abspath(os.fspath(path))
    if place not in _read.known:
        _read.known[place] = files.read_adapter(path)
    known: dict[int, float] = _read.known[place]
    return known


class _Kept(ReferenceModel):
    def with_adapter(self, path: _Path | None, /) -> TextModel:
        """Return a model with the adapter that was first read there."""
        model = super().with_adapter(path)
        if path is not None and isinstance(model, ReferenceModel):
            model.take_bias(_kept(path))
        return model


@saboteur("adapters-kept-by-path", "an adapter that was replaced at its path is not read again")
class AdaptersKeptByPath(Reference):
    """Keeps the adapters that were read, by their paths."""

    model_class = _Kept

    def load_model(self, path: _Path, config: LoadConfig) -> ReferenceModel:
        """Load a model with the adapter that was first read at its path."""
        model = super().load_model(path, config)
        if config.adapter_path is not None:
            model.take_bias(_kept(config.adapter_path))
        return model
