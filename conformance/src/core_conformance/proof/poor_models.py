"""Poor models: sound ones that lack what some checks look at, so that these could pass in silence.

With such a model a check has to say that it cannot tell, and no other may pass without having
compared something.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from core.errors import ChatTemplateError
from core.kit.chat import RenderedPrompt, render
from core.options import GenerateConfig
from core.protocols import Backend, Capability
from core.types import Message
from core_conformance.checking.applies import CONTEXT
from core_conformance.checking.ask import LABELS
from core_conformance.proof.registry import whole
from core_conformance.reference.backend import Reference
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
    """Ends after every prompt, greedy."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        values[EOS] = _SURE
        return values


class Terse(Language):
    """Ends after one token, greedy."""

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


class OfAscii(Reference):
    """The reference with that model."""

    language_class = Ascii


class Stubborn(Language):
    """Says one and the same token, greedy."""

    def logits(self, ids: Sequence[int]) -> array[float]:
        values = super().logits(ids)
        values[ord("a")] = _SURE
        return values


class Deaf(Language):
    """Has one distribution, whatever the prompt."""

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

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        super().rendered(messages, config)
        continues = config is not None and config.continue_final_message
        return render(messages, SPECIAL, _said if continues else _plain, config=config)


class ShortTemplate(ReferenceModel):
    """Has a chat template for a single turn of the user."""

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        if [message.role for message in messages] != ["user"]:
            raise ChatTemplateError("The template takes one message of the user.")
        return super().rendered(messages, config)


class NoTemplate(ReferenceModel):
    """Has no chat template."""

    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        super().rendered(messages, config)
        raise ChatTemplateError("This model has no chat template. Use generate().")


def _plain(messages: Sequence[Message]) -> str:
    return _said(messages) + "assistant: "


def _said(messages: Sequence[Message]) -> str:
    return "".join(f"{message.role}: {message.content}. " for message in messages)


def _next(text: str) -> list[str]:
    """Return the texts, of a token each, with which a label continues after this one, or begins."""
    begun = [
        label[size]
        for label in LABELS
        for size in range(1, len(label))
        if text.endswith(f" {label[:size]}")
    ]
    if begun or text.endswith(", "):  # which is one token
        return begun or [label[0] for label in LABELS]
    return ["n"] if text.endswith(" ") else [" good", " bad", " "]


def _ids(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ACROSS = _ids("stop.across-two stop.across-three")
_STOPS = _ids(
    """
    stop.across-three stop.across-two stop.held-back stop.in-token stop.never stop.overlapping
    stop.several stop.tokens
    """
)
_ALIKE = _ids(
    """
    batch.equals-generate batch.many batch.order batch.stream classify.order classify.stream
    concurrency.classify concurrency.parallel-slots concurrency.streams concurrency.submit
    concurrency.waiting-turn history.speech submitting.equals-generate
    """
)
_UNHEARD = _ALIKE | _ids(
    """
    classify.equal-prompts classify.neighbours classify.padding hidden.prompts history.classify
    history.many history.scores history.threads labels.neighbours text.whole-characters
    """
)
POOR_MODELS = (
    PoorModel(
        "mute",
        "says nothing, greedy",
        whole(Mute),
        _ALIKE
        | _STOPS
        | _ids(
            """
            batch.error-rows batch.options batch.repeatable batch.results batch.stop batch.stops
            batch.stream-options cancel.batch-midway cancel.closed-stream cancel.midway
            cancel.unset
            cancel.works-after chat.equals-generate chat.final-message chat.mappings
            chat.no-template-options chat.options
            chat.second-turn classify.first-token classify.later-tokens
            concurrency.classify-while-streaming concurrency.second-stream
            labels.mass-extended lifecycle.any-thread
            metrics.generated-tokens sampling.cold sampling.greedy sampling.greedy-ignores-seed
            sampling.logprobs sampling.min-p-one
            sampling.repeat-penalty-huge sampling.repeat-penalty-output sampling.top-k-one
            sampling.top-p-tiny sampling.typical-p-tiny scoring.greedy streaming.close
            streaming.max-tokens streaming.reasons streaming.text streaming.tokens submitting.begins
            submitting.behind-own-stream submitting.close submitting.options text.unicode
            tokens.padding tokens.samples tokens.stream tokens.texts
            """
        ),
    ),
    PoorModel(
        "terse",
        "says one token at a time",
        whole(Terse),
        _STOPS
        | _ids(
            """
            cancel.batch-midway cancel.midway chat.mappings
            classify.later-tokens
            concurrency.classify concurrency.parallel-slots concurrency.streams
            concurrency.submit concurrency.waiting-turn
            sampling.repeat-penalty-huge sampling.repeat-penalty-output streaming.reasons
            submitting.close text.unicode
            """
        ),
    ),
    PoorModel(
        "endless",
        "never ends",
        whole(Endless),
        frozenset(),
    ),
    PoorModel(
        "ascii",
        "says nothing but ASCII",
        partial(OfAscii, without={Capability.TRAINABLE}),  # what is impossible cannot be learned
        _ids(
            """
            labels.nul sampling.repeat-penalty-huge text.unicode text.whole-characters
            """
        ),
    ),
    PoorModel(
        "stubborn",
        "says one and the same token",
        whole(Stubborn),
        _ALIKE
        | _ACROSS
        | _ids(
            """
            text.unicode
            """
        ),
    ),
    PoorModel(
        "deaf",
        "does not hear its prompt",
        whole(Deaf),
        _UNHEARD | _ACROSS,
    ),
    PoorModel(
        "blank",
        "has no weights",
        whole(Blank),
        _UNHEARD
        | _ACROSS
        | _ids(
            """
            adapters.changes adapting.handles
            classify.argmax classify.tolerance labels.label sampling.frequencies sampling.min-p
            sampling.repeat-penalty sampling.repeat-penalty-huge sampling.top-k sampling.top-p
            sampling.typical-p sampling.typical-p-first text.unicode training.loss training.scale
            training.untouched
            """
        ),
    ),
    PoorModel(
        "undecided",
        "prefers no label",
        whole(Undecided),
        _ids(
            """
            batch.equals-generate batch.many batch.order batch.stream classify.order
            classify.stream concurrency.classify concurrency.parallel-slots
            concurrency.waiting-turn history.speech labels.label labels.neighbours
            sampling.repeat-penalty
            """
        ),
    ),
    PoorModel(
        "no-template",
        "has no chat template",
        whole(NoTemplate),
        _ids(
            """
            chat.answers chat.content chat.continued chat.empty chat.equals-generate
            chat.final-message chat.final-message-end chat.final-message-of-user chat.mappings
            chat.no-template-options chat.options chat.unknown-variable
            chat.second-turn chat.special-plain chat.special-text chat.system
            """
        ),
    ),
    PoorModel(
        "short-template",
        "takes no conversation of several turns",
        whole(ShortTemplate),
        _ids(
            """
            chat.content chat.final-message chat.final-message-end chat.second-turn
            """
        ),
    ),
    PoorModel(
        "plain-template",
        "has no special tokens in its template",
        whole(PlainTemplate),
        _ids(
            """
            chat.special-plain chat.special-text
            """
        ),
    ),
    PoorModel(
        "short-context",
        "has room for 128 tokens",
        Reference,
        frozenset(),
        {"context_len": CONTEXT},
    ),
)
