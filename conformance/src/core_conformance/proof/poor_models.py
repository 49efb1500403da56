"""Poor models: sound ones that lack what some checks look at, so that these could pass in silence.

With such a model a check has to say that it cannot tell, and no other may pass without having
compared something.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from core.chat import RenderedPrompt, render
from core.errors import ChatTemplateError
from core.protocols import Backend
from core.types import Message
from core_conformance.checking.ask import LABELS
from core_conformance.reference.language import Language
from core_conformance.reference.optional import ReferenceModel
from core_conformance.reference.vocabulary import EOS, SPECIAL, VOCAB_SIZE, decode, encode


@dataclass(frozen=True, slots=True)
class PoorModel:
    """A sound backend with a model that ``lacks`` something: the checks ``mute`` cannot tell."""

    name: str
    lacks: str
    backend: Callable[[], Backend]
    mute: frozenset[str]
    options: Mapping[str, object] = field(default_factory=dict)


_SURE = 60.0  # a logit far above all others
_NEVER = -60.0
_ASCII = range(0x80)


class Mute(Language):
    """Ends behind every prompt, greedy."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        values[EOS] = _SURE
        return values


class Terse(Language):
    """Ends behind one token, greedy."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        if len(ids) % 2:
            values[EOS] = _SURE
        return values


class Endless(Language):
    """Never ends."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        values[EOS] = _NEVER
        return values


class Ascii(Language):
    """Says nothing but ASCII."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        return array(
            "f", (v if i in _ASCII or i >= EOS else -float("inf") for i, v in enumerate(values))
        )


class Stubborn(Language):
    """Says one and the same token, greedy."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        values[ord("a")] = _SURE
        return values


class Deaf(Language):
    """Has one distribution, whatever was said."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        return super().logits(())


class Blank(Language):
    """Has no weights: every token has the same logit."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        return array("f", bytes(4 * VOCAB_SIZE))


class Undecided(Language):
    """Thinks each of the usual labels as likely as any other."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        for text in _next(decode(ids[-5:])):
            values[encode(text)[-1]] = _SURE
        return values


class PlainTemplate(ReferenceModel):
    """Has a chat template without special tokens."""

    def rendered(self, messages: Sequence[Message]) -> RenderedPrompt:
        return render(messages, SPECIAL, _plain)


class ShortTemplate(ReferenceModel):
    """Has a chat template for a single turn of the user."""

    def rendered(self, messages: Sequence[Message]) -> RenderedPrompt:
        if [message.role for message in messages] != ["user"]:
            raise ChatTemplateError("The template takes one message of the user.")
        return super().rendered(messages)


class NoTemplate(ReferenceModel):
    """Has no chat template."""

    def rendered(self, messages: Sequence[Message]) -> RenderedPrompt:
        super().rendered(messages)
        raise ChatTemplateError("This model has no chat template. Use generate().")


def _plain(messages: Sequence[Message]) -> str:
    return "".join(f"{message.role}: {message.content}. " for message in messages) + "assistant: "


def _next(behind: str) -> list[str]:
    """The texts, of a token each, with which a label goes on behind this one, or begins."""
    begun = [
        label[size]
        for label in LABELS
        for size in range(1, len(label))
        if behind.endswith(f" {label[:size]}")
    ]
    if begun or behind.endswith(", "):  # which is one token
        return begun or [label[0] for label in LABELS]
    return ["n"] if behind.endswith(" ") else [" good", " bad", " "]


_ACROSS = {"stop.across-two", "stop.across-three"}
POOR_MODELS: tuple[PoorModel, ...] = ()
