"""The end of the context: a generation that reaches it, and one that rotates past it."""

from __future__ import annotations

from typing import Any

from core.capability import Capability
from core.errors import OptionError, UnsupportedOptionError
from core.protocols import TextModel
from core_conformance import prompts
from core_conformance.answers import Answer, read, tokenizing
from core_conformance.model import NotTestable, Violation, must
from core_conformance.registry import check
from core_conformance.speaking import speaks
from core_conformance.subject import Subject

_SMALL = 32  # positions
_LARGE = 1024  # more than this would take too long to fill
_UNIFORM = 1e4  # a temperature
_ENDS = (
    "behind each of some prompts the model ends before the context is full, and there is no "
    "temperature to make it go on: take a model that goes on"
)
_BEYOND = 12  # tokens asked for that the context has no place for


@check(
    "context.length",
    'A generation that reaches the end of the context MUST end there, with "length"',
    Capability.GENERATE,
)
def context_ends_generation(subject: Subject) -> None:
    try:
        model = subject.load(context_len=_SMALL)
    except OptionError:
        model = subject.load()  # a backend may refuse to make it smaller
    with model:
        limit = model.info.context_length
        if limit > _LARGE:
            return
        prompt, answer = _fill(subject, model)
        _ends_within(subject, prompt, limit, answer)


@check(
    "context.rotate",
    'With context_overflow="rotate" a generation MUST go on beyond the context',
    Capability.GENERATE,
    Capability.ROTATE,
)
def rotation_goes_on(subject: Subject) -> None:
    with subject.loaded(context_len=_SMALL, context_overflow="rotate") as model:
        limit = model.info.context_length
        if limit > _LARGE:
            return
        _, answer = _fill(subject, model)
        must(
            len(answer.tokens) == limit + _BEYOND,
            f"with a rotating context of {limit}, max_tokens={limit + _BEYOND} gave "
            f"{len(answer.tokens)} tokens and {answer.finish_reason!r}",
        )


def _fill(subject: Subject, model: TextModel) -> tuple[str, Answer]:
    """A prompt behind which the model does not come to an end of its own, and the answer.

    Where greedy answers all do, draws do not that leave each token about the same probability.
    """
    speaks(subject, Capability.GENERATE)
    many = model.info.context_length + _BEYOND
    ways: tuple[dict[str, Any], ...] = ({}, {"temperature": _UNIFORM})
    for options in ways:
        for prompt in prompts.PLAIN:
            try:
                answer = read(model.generate(prompt, max_tokens=many, **options), prompt)
            except UnsupportedOptionError as error:
                must(error.option in options, f"a plain generation raised {error!r}")
                raise NotTestable(_ENDS) from None
            if answer.finish_reason != "stop":
                return prompt, answer
    raise Violation(
        f"every generation with max_tokens={many} said 'stop' before its end, at a temperature of "
        f"{_UNIFORM:g} too: one that the context or max_tokens ends has finish_reason 'length'"
    )


def _ends_within(subject: Subject, prompt: str, limit: int, answer: Answer) -> None:
    count, reason = len(answer.tokens), answer.finish_reason
    must(
        reason == "length" and 0 < count < limit + _BEYOND,
        f"a context of {limit} ended a generation after {count} tokens with {reason!r}; with "
        "'length', and before max_tokens, was expected",
    )
    if subject.declares(Capability.TOKENIZING):
        # Same tokens for any context length. The last token drawn needs no place of its own.
        used = len(tokenizing(subject).encode(prompt)) + count
        must(
            limit - 1 <= used <= limit + 1,
            f"prompt and answer are {used} tokens; the context holds {limit}",
        )
