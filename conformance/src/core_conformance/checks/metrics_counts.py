"""Checks of what metrics count where options end, label or prolong what is generated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from core.protocols import Capability
from core.types import GenerateMetrics
from core_conformance.checking import ask
from core_conformance.checking.ask import Answer, generate, speak, speaks, voice
from core_conformance.checking.calls import encoded_length
from core_conformance.checking.check import check, leave_out, must, testable
from core_conformance.checking.sizes import small
from core_conformance.checking.subject import Subject

_LENGTH, _SMALL, _BEYOND = 12, 32, 6  # tokens, positions, and tokens after the context is full
_MORE = 5  # tokens of a short continuation
_NO_TEXT = "the model says no text that could be stopped: use a model that continues"


@check(
    "metrics.stopped",
    "Where a stop string or a stop token ends an answer, generated_tokens MUST count the tokens "
    "given, and none that was drawn and held back",
    ask.SPEAKING,
)
def stopped_answers(subject: Subject) -> None:
    speaks(subject, voice(subject))
    compared = 0
    for prompt, stops in _stops(subject):
        stream = speak(subject, subject.model, prompt, max_tokens=_LENGTH, **stops)
        given = len(list(stream))
        _must_be(stream.metrics, given, f"an answer to {prompt!r} that {stops} ended")
        compared += 1
    testable(compared > 0, _NO_TEXT)


@check(
    "metrics.labels",
    "With labels, of however many tokens, metrics MUST count the prompts' tokens, and one token "
    "for each row",
    Capability.CLASSIFY,
    Capability.LABELS,
)
def labelled_rows(subject: Subject) -> None:
    prompts = ask.PLAIN[:3]
    lengths = [encoded_length(subject, prompt) for prompt in prompts]
    for only in (False, True):
        ask.classify(subject, prompts, labels=ask.SEVERAL_WORDS, labels_only=only)
        metrics = subject.model.metrics
        what = f"classify of {len(prompts)} prompts with labels={ask.SEVERAL_WORDS}"
        _must_be(metrics, len(prompts), what)
        _must_read(metrics, lengths, what)


@check(
    "metrics.readers",
    "The metrics after score, hidden_states, generate_tokens and score_tokens MUST be those of "
    "that call: the tokens given, and those of its prompts, perhaps with what was read of "
    "continuations",
    (Capability.SCORING, Capability.HIDDEN_STATES, Capability.TOKEN_PROMPTS),
)
def reading_calls(subject: Subject) -> None:
    model: Any = subject.model
    prompts = ask.PLAIN[:3]
    lengths = [encoded_length(subject, prompt) for prompt in prompts]
    tails = [" good"] * len(prompts)
    if subject.declares(Capability.SCORING):
        ask.score(subject, prompts, tails)
        _must_be(model.metrics, 0, "score")
        _must_read(model.metrics, lengths, "score", _MORE * len(prompts))
    if subject.declares(Capability.HIDDEN_STATES):
        ask.hidden(subject, prompts[:2])
        _must_be(model.metrics, 0, "hidden_states")
        _must_read(model.metrics, lengths[:2], "hidden_states")
    if subject.declares(Capability.TOKEN_PROMPTS):
        rows = [[1, 2, 3, 4], [2, 1]]
        sequences = model.generate_tokens(rows, max_tokens=3)
        given = sum(sum(sequence.generated) for sequence in sequences)
        _must_be(model.metrics, given, "generate_tokens")
        _must_read(model.metrics, [4, 2], "generate_tokens")
        model.score_tokens(rows[:1], [[1, 2]])
        _must_be(model.metrics, 0, "score_tokens")
        _must_read(model.metrics, [4], "score_tokens", 2)


@check(
    "metrics.rotated",
    "With a rotating context metrics MUST count the whole prompt, once, and all tokens given, also "
    "those after the context was full",
    Capability.GENERATE,
    Capability.ROTATE,
)
def rotated_answers(subject: Subject) -> None:
    speaks(subject, Capability.GENERATE)
    with small(subject, _SMALL, context_overflow="rotate") as model:
        limit = model.info.context_length
        many = limit + _BEYOND if limit <= 2 * _SMALL else _LENGTH
        for prompt in ask.PLAIN[:2]:
            stream = model.generate(prompt, max_tokens=many)
            given, what = len(list(stream)), f"{prompt!r} in a rotating context of {limit}"
            _must_be(stream.metrics, given, what)
            _must_read(stream.metrics, [encoded_length(subject, prompt)], what)


def _stops(subject: Subject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a prompt with a stop string over two tokens, and one with a stop token."""
    for prompt in ask.PLAIN[:3]:
        free = generate(subject, prompt, _LENGTH)
        if stop := _across(free):
            yield prompt, {"stop": (stop,)}
        else:
            leave_out(f"a stop string in the answer to {prompt!r}: no two tokens have text")
        if free.ids:
            yield prompt, {"stop_tokens": (free.ids[len(free.ids) // 2],)}


def _across(free: Answer) -> str:
    """Return the text over a border of two tokens in the middle of an answer."""
    middle = len(free.tokens) // 2
    for one, other in zip(free.tokens[middle:], free.tokens[middle + 1 :], strict=False):
        if one.text and other.text and "\ufffd" not in one.text + other.text:
            return one.text[-1] + other.text[0]
    return ""


def _must_be(metrics: GenerateMetrics, given: int, what: str) -> None:
    counted = metrics.generated_tokens
    must(counted == given, f"{what} gave {given} tokens, and generated_tokens is {counted}")


def _must_read(
    metrics: GenerateMetrics, lengths: Sequence[int | None], what: str, more: int = 0
) -> None:
    """Raise `Violation` unless the prompts are counted, and at most so many tokens ``more``."""
    known = [length for length in lengths if length is not None]
    counted, whole = metrics.prompt_tokens, len(known) == len(lengths)
    must(
        0 <= counted - sum(known) <= more if whole else counted >= len(lengths),
        f"{what}: prompt_tokens is {counted}, and the prompts have {lengths} tokens",
    )
