"""Chat prompts in which only the template, never the user, can spell special tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Self

from core.errors import ChatTemplateError
from core.types import Message


class RenderedPrompt(str):
    """A rendered chat prompt that still knows which special tokens its template wrote.

    ``marked`` is the same text with a marker character inside each special token that a message
    spelled; removing the marker gives back the prompt. A tokenizer reads special tokens from
    ``marked`` and everything else as plain text.
    """

    marked: str
    marker: str

    def __new__(cls, marked: str, marker: str) -> Self:
        prompt = super().__new__(cls, marked.replace(marker, ""))
        prompt.marked, prompt.marker = marked, marker
        return prompt

    def __reduce__(self) -> tuple[object, ...]:
        return RenderedPrompt, (self.marked, self.marker)

    def extended(self, continuation: str, special: Collection[str]) -> RenderedPrompt:
        """This prompt with plain text after it."""
        return RenderedPrompt(self.marked + defuse(continuation, special, self.marker), self.marker)


def continued(prompt: str, continuations: Sequence[str], special: Collection[str]) -> list[str]:
    """The prompt with each continuation behind it, which cannot spell ``special`` tokens."""
    if isinstance(prompt, RenderedPrompt):
        return [prompt.extended(continuation, special) for continuation in continuations]
    return [prompt + continuation for continuation in continuations]


def render(
    messages: Sequence[Message],
    special: Collection[str],
    template: Callable[[Sequence[Message]], str],
) -> RenderedPrompt:
    """Run a chat template over messages whose contents cannot spell a special token."""
    marker = _unused_character(messages)
    safe = [replace(m, content=defuse(m.content, special, marker)) for m in messages]
    return RenderedPrompt(template(safe), marker)


def defuse(text: str, special: Collection[str], marker: str) -> str:
    """Put the marker after the first character of each special token that the text spells."""
    for token in special:
        while len(token) > 1 and token in text:  # again, since occurrences may overlap
            text = text.replace(token, token[0] + marker + token[1:])
    return text


def _unused_character(messages: Sequence[Message]) -> str:
    used = set().union(*(message.content for message in messages)) if messages else set()
    # Unicode noncharacters: in no tokenizer's vocabulary and in no sane text.
    free = (
        c for c in map(chr, (*range(0xFDD0, 0xFDF0), *range(0xF0000, 0xFFFFE))) if c not in used
    )
    marker = next(free, None)
    if marker is None:
        raise ChatTemplateError("The messages use every private character of Unicode.")
    return marker
