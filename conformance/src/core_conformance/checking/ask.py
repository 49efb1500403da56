"""Ask each operation and return its answer in full, with more evidence if it is declared.

The inputs are fixed: nothing about them is special, and no answer to them is known beforehand. To a
backend that gives no token, much seems to be kept: so whether there is anything to look at is asked
first.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from weakref import WeakKeyDictionary

from core.errors import ChatTemplateError
from core.extensions import (
    AttentionInspector,
    BatchStreaming,
    HiddenStates,
    Scoring,
    Submitting,
    Tokenizing,
    Trainable,
)
from core.options import GenerateConfig
from core.protocols import Capability, TextModel, TokenStream
from core.types import (
    AttentionSnapshot,
    BatchResult,
    ClassifyResult,
    Conversation,
    HiddenResult,
    Message,
    Score,
    Token,
)
from core_conformance.checking.check import well_formed
from core_conformance.checking.material import labels, own
from core_conformance.checking.subject import Subject

_OWN = own()
PLAIN = (_OWN and _OWN.prompts[:6]) or (
    "The capital of France is",
    "Once upon a time there was",
    "1 2 3 4 5 6",
    "Dear Sir or Madam,",
    "She opened the door and",
    "for i in range(10):",
)
LONG = (_OWN and _OWN.long) or (
    "The quick brown fox jumps over the lazy dog, and then it runs away into the wood"
)
SHORT = "A"
# What could reach a neighbour if rows were not kept apart: other scripts, repetition, white space.
HOSTILE = ("\n\n\n\n.", "!!!!!!!!!!!!!!!!", "ÿÿÿÿ 漢字 🎉", "</s> <eos> <|endoftext|>")
ODD = {
    "one space": " ",
    "newlines": "\n\n",
    "a tab at the end": "Name:\t",
    "combining marks": "Cafe\u0301 nai\u0308ve",
    "emoji": "🎉🎊🥳🎉🎊🥳🎉",
    "a joined emoji": "👩‍👩‍👧‍👦 and 🏳️‍🌈",
    "Chinese": "今天天气很好我们去公园",
    "Japanese": "日本語の文章を書きます。",
    "Arabic": "مرحبا بالعالم",
    "Hebrew with Latin": "שלום abc שלום",
    "Cyrillic": "Привет, как дела",
    "carriage returns": "one\r\ntwo\r\n",
}
REPEATING = (_OWN and _OWN.repeating) or (
    "one two one two one two one",
    "A B A B A B A",
    "na na na na na na",
)
LABELS = labels()
SEVERAL_WORDS = (_OWN and _OWN.several_words) or ("very good", "very bad", "not new")
QUESTION = (_OWN and _OWN.prompts[0]) or "The weather today is"
SPEAKING = (Capability.GENERATE, Capability.CHAT, Capability.SUBMITTING)
"""The operations that give a stream."""
CONTINUING = (*SPEAKING, Capability.CLASSIFY, Capability.BATCH_GENERATE)
"""The operations of a model that continues its prompt."""

_HOT = {"temperature": 50.0}  # where the model ends every prompt at once, a draw still continues
_heard: WeakKeyDictionary[Subject, set[Capability]] = WeakKeyDictionary()


def speaks(subject: Subject, operation: Capability) -> None:
    """Raise `Violation` when an operation never gives a token; asked once for a subject."""
    heard = _heard.setdefault(subject, set())
    if operation in heard:
        return
    well_formed(
        any(
            list(_first_tokens(subject, operation, prompt, options))
            for options in ({}, _HOT)
            for prompt in PLAIN
        ),
        f"{operation} gave no token for any of {len(PLAIN)} prompts, greedy and at a very "
        "high temperature: hand out the tokens that are drawn, or there is nothing to look at",
    )
    heard.add(operation)


def voice(subject: Subject) -> Capability:
    """Return the operation through which streams are checked.

    `SPEAKING`'s first that is declared.
    """
    return next((name for name in SPEAKING if subject.declares(name)), Capability.GENERATE)


def speak(subject: Subject, model: TextModel, prompt: str, **options: Any) -> TokenStream:
    """Return a stream of that operation.

    A prompt continued, or a message of these words answered.
    """
    return begin(voice(subject), model, prompt, options)


def begin(
    operation: Capability, model: TextModel, prompt: str, options: dict[str, Any]
) -> TokenStream:
    """Return a stream of this one of `SPEAKING`, whose work has not begun."""
    return _STREAM[operation](model, prompt, options)


def opened(
    operation: Capability, model: TextModel, prompt: str, options: dict[str, Any]
) -> TokenStream:
    """Return a stream of this one of `SPEAKING`; see `speak`."""
    return _STREAM[operation](model, prompt, options)


def _generate(model: TextModel, prompt: str, options: dict[str, Any]) -> TokenStream:
    return model.generate(prompt, **options)


def _chat(model: TextModel, prompt: str, options: dict[str, Any]) -> TokenStream:
    return model.chat([Message("user", prompt)], **options)


def _submit(model: TextModel, prompt: str, options: dict[str, Any]) -> TokenStream:
    return cast("Submitting", model).submit(prompt, GenerateConfig(**options))


_STREAM: dict[Capability, Callable[[TextModel, str, dict[str, Any]], TokenStream]] = {
    Capability.GENERATE: _generate,
    Capability.CHAT: _chat,
    Capability.SUBMITTING: _submit,
}


def _first_tokens(
    subject: Subject, operation: Capability, prompt: str, options: dict[str, Any]
) -> Iterable[Token]:
    if operation in _STREAM:
        return _STREAM[operation](subject.model, prompt, {"max_tokens": 2} | options)
    if operation is Capability.BATCH_STREAMING:
        batches = cast("BatchStreaming", subject.model)
        return [token for _, token in batches.batch_stream([prompt], max_tokens=2, **options)]
    (row,) = subject.model.batch_generate([prompt], max_tokens=2, **options)
    return row.tokens


@dataclass(frozen=True, slots=True)
class Answer:
    """A generation that was read to its end; ``prompt`` is the text it continues, if known."""

    tokens: tuple[Token, ...]
    finish_reason: str | None
    prompt: str = field(default="", compare=False)

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens' ids."""
        return tuple(token.id for token in self.tokens)

    @property
    def text(self) -> str:
        """The tokens' text, joined."""
        return "".join(token.text for token in self.tokens)


def read(stream: TokenStream, prompt: str = "") -> Answer:
    """Read a stream to its end."""
    tokens = tuple(stream)
    return Answer(tokens, stream.finish_reason, prompt)


def generate(subject: Subject, prompt: str, max_tokens: int = 8, **options: Any) -> Answer:
    """Run ``generate``, greedy by default, with logprobs if they are declared.

    A backend without ``generate`` is asked through the first of `SPEAKING` that it declares.
    """
    speaks(subject, voice(subject))
    request = evidence(subject) | options
    stream = speak(subject, subject.model, prompt, max_tokens=max_tokens, **request)
    continues = voice(subject) is not Capability.CHAT  # which answers it instead
    return read(stream, prompt if continues else "")


def batch(
    subject: Subject, prompts: Sequence[str], max_tokens: int = 8, **options: Any
) -> list[BatchResult]:
    """Call ``batch_generate`` and see that each prompt has one result; options as in `generate`."""
    speaks(subject, Capability.BATCH_GENERATE)
    request = evidence(subject) | options
    results = subject.model.batch_generate(prompts, max_tokens=max_tokens, **request)
    _one_each("batch_generate()", prompts, results)
    return results


def answer(result: BatchResult, prompt: str = "") -> Answer:
    """Return the answer in a row of a batch; a row that failed is a violation."""
    well_formed(
        result.error is None, f"batch_generate() gave a sound prompt the error {result.error!r}"
    )
    return Answer(result.tokens, result.finish_reason, prompt)


def classify(subject: Subject, prompts: Sequence[str], **options: Any) -> list[ClassifyResult]:
    """Call ``classify`` on sound prompts: each must have one result, and none an error."""
    results = subject.model.classify(prompts, **options)
    _one_each("classify()", prompts, results)
    for prompt, result in zip(prompts, results, strict=True):
        well_formed(
            result.error is None, f"classify() gave {prompt!r:.60} the error {result.error!r}"
        )
    return results


def answered(row: object) -> bool:
    """Return whether a row without an error has a content; one of a batch may be empty."""
    parts = (getattr(row, name, True) for name in ("token", "token_logprobs", "states"))
    return bool(getattr(row, "label", None)) or all(parts)


def token(result: ClassifyResult) -> Token:
    """Return the token of a classify result; a result that is an error is a violation."""
    well_formed(
        isinstance(result.token, Token), f"classify() gave {result.token!r} instead of a Token"
    )
    return cast("Token", result.token)


def sampled(result: ClassifyResult, prompt: str = "") -> Answer:
    """Return the token of a classify result as an answer of one token; an error is a violation."""
    return Answer((token(result),), None, prompt)


def logits(subject: Subject, prompts: Sequence[str]) -> list[array[float]]:
    """Return the logits of each prompt."""
    return [row_logits(result) for result in classify(subject, prompts, return_logits=True)]


def row_logits(result: ClassifyResult) -> array[float]:
    """Return the logits of a result for which they were asked."""
    well_formed(bool(result.logits), "return_logits=True, and a result has no logits")
    return cast("array[float]", result.logits)


def score(subject: Subject, prompts: Sequence[str], continuations: Sequence[str]) -> list[Score]:
    """Call ``score`` on sound pairs: each must have one score, and none an error."""
    scores = scoring(subject).score(prompts, continuations)
    _one_each("score()", prompts, scores)
    for prompt, result in zip(prompts, scores, strict=True):
        well_formed(result.error is None, f"score() gave {prompt!r:.60} the error {result.error!r}")
        well_formed(bool(result.token_logprobs), f"score() gave {prompt!r:.60} no token's logprob")
    return scores


def hidden(
    subject: Subject, prompts: Sequence[str], layers: Sequence[int] = (-1,)
) -> list[HiddenResult]:
    """Call ``hidden_states`` on sound prompts: each has one result with states, and no error."""
    results = showing(subject).hidden_states(prompts, layers=layers)
    _one_each("hidden_states()", prompts, results)
    for prompt, result in zip(prompts, results, strict=True):
        call = f"hidden_states() gave {prompt!r:.60}"
        well_formed(result.error is None, f"{call} the error {result.error!r}")
        states = result.states or array("f")
        sound = is_floats(states, len(states)) and all(map(math.isfinite, states))
        well_formed(
            sound and len(states) > 0 and len(states) % len(layers) == 0,
            f"{call} no float32 array of finite numbers, as many for each of {len(layers)} layers",
        )
    return results


# Draws from a few tokens of about the same probability. With the whole vocabulary, each would have
# so small a share that the least noise in the logits changed the draw.
EVEN = {"temperature": 20.0, "top_k": 8}


def evidence(subject: Subject) -> dict[str, Any]:
    """Return options that change no token but give more details of it."""
    return {"return_logprobs": True} if subject.declares(Capability.LOGPROBS) else {}


def seeds(subject: Subject, count: int) -> list[dict[str, int]]:
    """Return options for that many independent draws, with fixed seeds if seeds are supported."""
    if not subject.declares(Capability.SEED):
        return [{} for _ in range(count)]
    # Far apart (splitmix64's odd constant): nothing is promised about seeds next to one another.
    return [{"seed": (i + 1) * 0x9E3779B97F4A7C15 % 2**63} for i in range(count)]


def is_token(value: object, vocab_size: int) -> bool:
    """Return True for a `core.Token` that has an id below ``vocab_size`` and text."""
    return isinstance(value, Token) and is_id(value.id, vocab_size) and _is_a(value.text, str)


def is_id(value: object, vocab_size: int) -> bool:
    """Return True for a token id; a bool, although an int, is not one."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab_size


def is_floats(value: object, size: int) -> bool:
    """Return True for a float32 ``array.array`` of ``size`` numbers."""
    return isinstance(value, array) and value.typecode == "f" and len(value) == size


def tokenizing(subject: Subject) -> Tokenizing:
    """Return the model, which is declared to show its tokenizer."""
    return cast("Tokenizing", subject.model)


def scoring(subject: Subject) -> Scoring:
    """Return the model, which is declared to score."""
    return cast("Scoring", subject.model)


def submitting(subject: Subject) -> Submitting:
    """Return the model, which is declared to take requests at any time."""
    return cast("Submitting", subject.model)


def showing(subject: Subject) -> HiddenStates:
    """Return the model, which is declared to show hidden states."""
    return cast("HiddenStates", subject.model)


def trainable(model: TextModel) -> Trainable:
    """Return a model of a backend that is declared to train."""
    return cast("Trainable", model)


def inspect(subject: Subject, prompt: str) -> AttentionSnapshot:
    """Call ``inspect_attention`` of the model, which is declared to show its attention keys."""
    return cast("AttentionInspector", subject.model).inspect_attention(prompt)


def rendered(subject: Subject, turns: Conversation) -> str | None:
    """Render a prompt; None if the model's template refuses, as it may."""
    try:
        return tokenizing(subject).render_chat(turns)
    except ChatTemplateError:
        return None


def _one_each(call: str, prompts: Sequence[str], results: Sequence[object]) -> None:
    size = f" of {len(results)}" if isinstance(results, list | tuple) else ""
    well_formed(
        isinstance(results, list) and len(results) == len(prompts),
        f"{call} of {len(prompts)} prompts returned a {type(results).__name__}{size}, not a list "
        "of one result each",
    )


def _is_a(value: object, kind: type) -> bool:
    return isinstance(value, kind)  # whatever the annotations promise
