"""Saboteurs of text: characters that are cut, prompts that are changed, a tokenizer that lies."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from core.errors import EmptyPromptError, RequestError
from core.kit.chat import RenderedPrompt
from core.kit.text_stream import TokenAssembler
from core.options import GenerateConfig
from core.protocols import Backend
from core.types import BatchResult, ClassifyResult, Score, Token
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.labels import AsksOtherwise
from core_conformance.proof.saboteurs.stop import StopGeneration
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


class Surrogates(Alone):
    """Decodes invalid bytes as lone surrogates."""

    errors = "surrogateescape"


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


@saboteur("decodes-to-nul", "decode ends at the first NUL, as a string of C does")
class DecodesToNul(ReferenceModel):
    def decode(self, ids: Sequence[int]) -> str:
        return super().decode(ids).partition("\0")[0]


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


def _sober(generation: type[Generation]) -> Callable[[], Backend]:
    """Return a backend with these rows and a model that hardly ever shows their fault."""
    engine = type("SoberEngine", (Engine,), {"generation_class": generation})
    model = type("SoberModel", (ReferenceModel,), {"engine_class": engine})
    return type("SoberReference", (Reference,), {"model_class": model, "language_class": Sober})


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


@saboteur(
    "batches-drop-blanks",
    "in a batch, the tokens after the first lose the blank that they begin with",
)
class BatchesDropBlanks(Batch):
    def _result(self, row: int, tokens: list[Token]) -> BatchResult:
        stripped = [Token(token.id, token.text.lstrip(" "), token.logprob) for token in tokens[1:]]
        return super()._result(row, tokens[:1] + stripped)


@saboteur(
    "continuations-escape",
    "a continuation that is not Unicode raises what str.encode raises, for all pairs",
)
class ContinuationsEscape(ReferenceModel):
    def score(self, prompts: Any, continuations: Any, *config: Any, **options: Any) -> list[Score]:
        for text in continuations:
            text.encode()
        return super().score(prompts, continuations, *config, **options)


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


@saboteur("stops-lose-surrogates", "what is not Unicode is left out of stop strings")
class StopsLoseSurrogates(StopGeneration):
    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, map(_cleaned, stops)))


@saboteur("stops-end-at-nul", "a stop string is what stands before its NUL")
class StopsEndAtNul(StopGeneration):
    def seen(self, stops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(filter(None, (stop.partition("\0")[0] for stop in stops)))


@saboteur("controls-refused", "a prompt that holds a control character is refused")
class ControlsRefused(Engine):
    def prompt_ids(self, prompt: str) -> list[int]:
        if any(char < " " and char not in "\0\t\r\n" for char in prompt):
            raise RequestError("The prompt cannot be printed.")
        return super().prompt_ids(prompt)


@saboteur("labels-stripped", "labels are stripped of blanks")
class LabelsStripped(AsksOtherwise):
    def instead(self, config: GenerateConfig) -> dict[str, Any]:
        return {"labels": tuple(dict.fromkeys(label.strip() for label in config.labels))}


def _cleaned(text: str) -> str:
    return text.encode(errors="ignore").decode()
