"""Saboteurs of text: characters that are cut, prompts that are changed, a tokenizer that lies."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence

from core.errors import EmptyPromptError
from core.kit.chat import RenderedPrompt
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.protocols import Backend
from core.types import BatchResult, Token
from core_conformance.proof.registry import saboteur
from core_conformance.reference import vocabulary
from core_conformance.reference.backend import Reference
from core_conformance.reference.batch import Batch
from core_conformance.reference.engine import Engine, Generation, check_text
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.weights import unfinished


class Alone(vocabulary.Detokenizer):
    """Decodes every token alone; ``errors`` as in `bytes.decode`."""

    errors = "replace"

    def add(self, token_id: int) -> str:
        return vocabulary.token_bytes(token_id).decode(errors=self.errors)


class DecodedAlone(Generation):
    """A row whose text is made by ``detokenizer_class``."""

    detokenizer_class: type[vocabulary.Detokenizer] = Alone

    def __init__(self, ids: Sequence[int], config: GenerateConfig, room: int) -> None:
        super().__init__(ids, config, room)
        self.assembler = TokenAssembler(self.detokenizer_class(), config.stop)


@saboteur(
    "token-by-token",
    "every token is decoded alone: a character that lies in two tokens comes out broken",
)
class TokenByToken(DecodedAlone):
    """Decodes tokens one by one, with replacement characters for parts of a character."""


class Surrogates(Alone):
    """Decodes invalid bytes as lone surrogates."""

    errors = "surrogateescape"


@saboteur("surrogates", "bytes of a character that is not whole come out as lone surrogates")
class WithSurrogates(DecodedAlone):
    detokenizer_class = Surrogates


@saboteur("strips-prompts", "white space around a prompt is stripped, and nothing may be left")
class StripsPrompts(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        if not prompt.strip():
            raise EmptyPromptError
        return super().prompt_ids(prompt)


@saboteur("shows-bos", "decode shows special tokens")
class ShowsBos(ReferenceModel):
    def decode(self, ids: Sequence[int]) -> str:
        return vocabulary.SPECIAL[0] * list(ids).count(vocabulary.BOS) + super().decode(ids)


@saboteur("space-in-front", "encode puts a space before every text, and decode leaves it there")
class SpaceInFront(ReferenceModel):
    def decode(self, ids: Sequence[int]) -> str:
        text = super().decode(ids)
        return f" {text}" if vocabulary.BOS in ids else text


@saboteur(
    "decodes-alone",
    "decode decodes every id alone: a character that lies in several tokens is shown as U+FFFD",
)
class DecodesAlone(ReferenceModel):
    def decode(self, ids: Sequence[int]) -> str:
        decode = super().decode
        return re.sub("\ufffd+", "\ufffd", "".join(decode([id]) for id in ids))


class EndsPrompts(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        check_text(prompt)
        ids = [*vocabulary.encode(prompt), vocabulary.EOS]
        self.check_length(len(ids))
        return ids


@saboteur("ends-prompts", "every prompt is read with EOS after it")
class WithEndedPrompts(ReferenceModel):
    engine_class = EndsPrompts

    def encode(self, text: str) -> list[int]:
        return [*super().encode(text), vocabulary.EOS]


class Sober(Language):
    """Says ASCII, unless what the prompt holds is made likelier."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        if not unfinished(ids):
            for lead in (0xC3, 0xCE, 0xE2, 0xF0):
                values[lead] = 0.5
        return values


class ThreeBytes(vocabulary.Detokenizer):
    """Waits for no more than the third byte of a character."""

    def add(self, token_id: int) -> str:
        text = super().add(token_id)
        if not text and len(self._decoder.getstate()[0]) > 2:
            self._decoder.reset()
            return "\ufffd"
        return text


class WaitsForThreeBytes(DecodedAlone):
    detokenizer_class = ThreeBytes


def _sober(generation: type[Generation]) -> Callable[[], Backend]:
    """Return a backend with these rows and a model that hardly ever shows their fault."""
    engine = type("SoberEngine", (Engine,), {"generation_class": generation})
    model = type("SoberModel", (ReferenceModel,), {"engine_class": engine})
    return type("SoberReference", (Reference,), {"model_class": model, "language_class": Sober})


@saboteur(
    "three-bytes", "characters of four bytes are given up, with a model that says none by itself"
)
def three_bytes() -> Backend:
    """Return the reference with such rows."""
    return _sober(WaitsForThreeBytes)()


@saboteur(
    "rare-surrogates", "parts of characters come out as lone surrogates, with a model that says few"
)
def rare_surrogates() -> Backend:
    """Return the reference with such rows."""
    return _sober(WithSurrogates)()


@saboteur(
    "special-in-plain-text",
    "special tokens that any text spells are read as such, a user's message too",
)
class SpecialInPlainText(ReferenceModel):
    def encode(self, text: str) -> list[int]:
        return super().encode(RenderedPrompt(str.__str__(text), "\u0001"))


@saboteur("not-a-list", "encode returns a tuple")
class NotAList(ReferenceModel):
    def encode(self, text: str) -> list[int]:
        ids: object = tuple(super().encode(text))
        return ids  # type: ignore[return-value]


@saboteur("special-for-everyone", "special tokens that a message spells are read as special tokens")
class SpecialForEveryone(ReferenceModel):
    def encode(self, text: str) -> list[int]:
        ids = super().encode(text)
        if not isinstance(text, RenderedPrompt):
            return ids
        return super().encode(RenderedPrompt(str.__str__(text), text.marker))


_CLEANED = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" n't", "n't"), (" 's", "'s"))


def cleaned(text: str) -> str:
    """Text as ``clean_up_tokenization_spaces`` of transformers leaves it."""
    for spaced, plain in _CLEANED:
        text = text.replace(spaced, plain)
    return text


@saboteur("decode-cleans-up", "decode leaves the blanks before punctuation out")
class DecodeCleansUp(ReferenceModel):
    def decode(self, ids: Sequence[int]) -> str:
        return cleaned(super().decode(ids))


@saboteur(
    "batches-drop-blanks",
    "in a batch, the tokens after the first lose the blank that they begin with",
)
class BatchesDropBlanks(Batch):
    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        stripped = [Token(token.id, token.text.lstrip(" "), token.logprob) for token in tokens[1:]]
        return super()._result(row, tokens[:1] + stripped)
