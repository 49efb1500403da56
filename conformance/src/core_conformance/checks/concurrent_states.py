"""Checks of open streams that are read in turn: the state of each is its own, whatever it is."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import zip_longest
from typing import Any

from core.errors import ModelBusyError, UnsupportedOptionError
from core.protocols import Capability, TokenStream
from core.types import Token
from core_conformance.checking import ask
from core_conformance.checking.applies import goes_on
from core_conformance.checking.ask import EVEN, Answer, evidence, speaks, voice
from core_conformance.checking.calls import close_quietly
from core_conformance.checking.check import NotTestable, check, must
from core_conformance.checking.compare import same_answers
from core_conformance.checking.subject import Subject

_LENGTH = 12  # tokens
_PAIRS = (
    (ask.ODD["Japanese"], ask.ODD["emoji"]),
    (ask.REPEATING[0], ask.PLAIN[1]),
)
_BUSY = "the model has one stream open at a time"


@check(
    "concurrency.in-turn",
    "Open streams that are read in turn MUST each give the tokens and texts that they give alone, "
    "also with characters of several tokens, a penalty, stop strings, and seeds",
    ask.SPEAKING,
    broad=True,
)
def streams_in_turn(subject: Subject) -> None:
    speaks(subject, voice(subject))
    compared = list[tuple[Answer, Answer]]()
    for options in _options(subject):
        for prompts in _PAIRS:
            try:
                alone = [_read([_open(subject, prompt, options)])[0] for prompt in prompts]
                both = _in_turn(subject, prompts, options)
            except UnsupportedOptionError:
                continue
            pairs = list(zip(_answers(prompts, alone), _answers(prompts, both), strict=True))
            if "seed" not in options:
                same_answers(subject, pairs, f"streams alone, and read in turn with {options}")
            compared += pairs
    wrong = [(own.text, seen.text) for own, seen in compared if own.ids == seen.ids != ()]
    for own_text, seen_text in wrong:
        must(
            own_text == seen_text,
            f"a stream gave {own_text!r} alone, and {seen_text!r} of the same tokens where it was "
            "read in turn with another",
        )
    goes_on(subject, [own.ids for own, _ in compared])


def _options(subject: Subject) -> list[dict[str, Any]]:
    """Return options that keep a state from token to token."""
    options: list[dict[str, Any]] = [{}, {"repeat_penalty": 3.0}, {"stop": ("zq", "\u2603")}]
    if subject.declares(Capability.SEED):
        options.append({"seed": 11, **EVEN})
    return options


def _open(subject: Subject, prompt: str, options: dict[str, Any]) -> TokenStream:
    request = {"max_tokens": _LENGTH, **evidence(subject), **options}
    return ask.speak(subject, subject.model, prompt, **request)


def _in_turn(
    subject: Subject, prompts: Sequence[str], options: dict[str, Any]
) -> list[list[Token]]:
    with ExitStack() as stack:
        streams = [_open(subject, prompt, options) for prompt in prompts]
        for stream in streams:
            stack.callback(close_quietly, stream)
        try:
            return _read(streams)
        except ModelBusyError:
            raise NotTestable(_BUSY) from None


def _read(streams: Sequence[TokenStream]) -> list[list[Token]]:
    """Read streams in turn, a token of each."""
    turns = zip_longest(*streams)
    columns = list(zip(*turns, strict=True)) or [()] * len(streams)
    return [[token for token in column if token is not None] for column in columns]


def _answers(prompts: Sequence[str], read: Sequence[Sequence[Token]]) -> list[Answer]:
    return [
        Answer(tuple(tokens), None, prompt) for prompt, tokens in zip(prompts, read, strict=True)
    ]
