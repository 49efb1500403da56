"""Checks of rendered prompts: every operation reads their special tokens, and no one else's.

The yardstick is the same text as a plain string, which is read as other tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from core.protocols import Capability, TextModel
from core.types import Message
from core_conformance.checking.ask import tokenizing
from core_conformance.checking.check import check, must, testable
from core_conformance.checking.subject import Subject
from core_conformance.checking.ways.rows import run, same_rows, undisturbed
from core_conformance.checking.ways.table import WAYS, Row, Way, ways

_HELLO = [Message("user", "Hello")]
_TOKENS = 4
_PLAIN_TEXT = (
    "the chat template's text has the same tokens as a plain string: use a model whose template "
    "has special tokens"
)
_ALIKE = "the model says the same after every prompt: use a model whose output depends on it"
_BOTH = "a rendered prompt and its text as a plain string"
_READING = tuple(name for name in WAYS if name not in (Capability.CHAT, Capability.HIDDEN_STATES))


@check(
    "chat.rendered-operations",
    "Every operation MUST read a rendered prompt with its special tokens, and the same text as a "
    "plain string without them, whichever came first",
    Capability.CHAT,
    Capability.TOKENIZING,
)
def rendered_prompts_stay_special(subject: Subject) -> None:
    rendered, plain = _texts(subject)
    different: dict[str, bool] = {}
    for way in ways(subject, *_READING):
        with subject.loaded() as one, subject.loaded() as other:
            forth = _asked(subject, one, way, (rendered, plain))
            back = _asked(subject, other, way, (plain, rendered))[::-1]
        same_rows(subject, forth, back, f"{way.name} of {_BOTH}, in two orders")
        if way.name is not Capability.CLASSIFY or subject.declares(Capability.LOGPROBS):
            different[way.name] = _details(forth[0]) != _details(forth[1])

    # A model without weights says the same after every prompt, through all of them.
    testable(any(different.values()), _ALIKE)
    alike = [name for name, differs in different.items() if not differs]
    must(
        not alike,
        f"{', '.join(alike)} give the same results for {_BOTH}: they read the same tokens",
    )


def _texts(subject: Subject) -> tuple[str, str]:
    """Return a rendered prompt, and its text as a plain string."""
    rendered = tokenizing(subject).render_chat(_HELLO)
    plain, encode = str.__str__(rendered), tokenizing(subject).encode
    testable(len(encode(rendered)) != len(encode(plain)), _PLAIN_TEXT)
    return rendered, plain


def _asked(subject: Subject, model: TextModel, way: Way, prompts: Sequence[str]) -> list[Row]:
    rows = [row for prompt in prompts for row in run(subject, way, model, [prompt], _TOKENS)]
    undisturbed(rows, f"{way.name} of {_BOTH}")
    return rows


def _details(row: Row) -> tuple[object, ...]:
    return (row.answer.ids, [token.logprob for token in row.answer.tokens], row.numbers)
