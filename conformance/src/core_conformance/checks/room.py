"""Checks of the context's last places: by every operation, after prompts of any size."""

from __future__ import annotations

from typing import cast

from core.errors import OptionError, PromptTooLongError
from core.extensions import HiddenStates
from core.protocols import Capability, TextModel
from core_conformance.checking.ask import speak
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.sizes import NO_SIZES, sized
from core_conformance.checking.subject import Subject

_SMALL, _LARGE = 64, 1024  # positions
_SIZES = (48, 32, 47, 33, 16, 40, 56, 31)  # whole blocks, and others
_ENDS = "every answer ends before the context is full: use a model that continues"
_TOO_LARGE = "the context cannot be made small enough to be filled: use another model"


@check(
    "context.room",
    "After any prompt that leaves room, as many tokens MUST be drawn as fit: prompt and answer are "
    "as long together after a prompt of whole blocks as after any other",
    (Capability.GENERATE, Capability.SUBMITTING),
    Capability.TOKENIZING,
    broad=True,
)
def answers_fill_the_context(subject: Subject) -> None:
    with _small(subject) as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        totals: dict[int, int] = {}
        for size in _SIZES:
            prompt = sized(subject, limit - _SMALL + size, turn=6)
            if prompt is None:
                continue
            for seed in ({}, {"temperature": 1e4}):  # a model that ends at once continues then
                stream = speak(subject, model, prompt, max_tokens=2 * limit, **seed)
                tokens = len(list(stream))
                if stream.finish_reason == "length":
                    totals[size] = tokens + limit - _SMALL + size
                    break
        testable(len(totals) > 1, _ENDS)
        must(
            len(set(totals.values())) == 1,
            f"in a context of {limit}, prompt and answer have these tokens together, by the "
            f"prompt's: {totals}",
        )


@check(
    "hidden.full-context",
    "hidden_states MUST read a prompt that fills the context exactly, and give one a token longer "
    "PromptTooLongError",
    Capability.HIDDEN_STATES,
    Capability.TOKENIZING,
    broad=True,
)
def states_of_a_full_context(subject: Subject) -> None:
    compared = False
    with _small(subject) as model:
        limit = model.info.context_length
        testable(limit <= _LARGE, _TOO_LARGE)
        for size in (limit, limit + 1):
            prompt = sized(subject, size, turn=8)
            if prompt is None:
                continue
            compared = True
            [result] = cast("HiddenStates", model).hidden_states([prompt])
            must(
                isinstance(result.error, PromptTooLongError) == (size > limit)
                and (result.states is None) == (size > limit),
                f"hidden_states of a prompt of {size} tokens in a context of {limit} has "
                f"{result!r:.200}",
            )
    testable(compared, NO_SIZES)


def _small(subject: Subject) -> TextModel:
    try:
        return subject.load(context_len=_SMALL)
    except OptionError:
        return subject.load()  # a backend may refuse to make it smaller
