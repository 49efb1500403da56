"""Chat prompts of one model: written by its template, and read back as tokens.

Imports jinja2 (through `core.chat_templates`), which backends that use this bring along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from core.chat import RenderedPrompt, render
from core.chat_templates import Template, compile_template
from core.errors import ChatTemplateError
from core.support import checked_conversation
from core.types import Message

Tokenise = Callable[[list[str]], list[list[int]]]


class ChatPrompts:
    """Safe to use from several threads.

    ``template``: its source, None where there is none. ``variables``: ``bos_token`` and the like.
    ``special``: the ids of the special tokens, by their texts.
    """

    def __init__(
        self, template: str | None, variables: Mapping[str, str], special: Mapping[str, int]
    ) -> None:
        self._source, self._variables, self._special = template, variables, special
        self._marks = _any_of(special)
        self._template: Template | None = None

    def render(self, messages: Sequence[Message]) -> RenderedPrompt:
        """The prompt that asks for the assistant's next turn.

        Raises `ChatTemplateError` when the model has no template or its template fails.
        """
        return render(checked_conversation(messages), self._special, self._compiled())

    def encode(self, prompt: RenderedPrompt, tokenise: Tokenise) -> list[int]:
        """Token ids; what the template wrote as special tokens is read as such, and nothing else.

        ``tokenise`` gives the ids of plain texts, without a BOS; a text may be empty.
        """
        parts = self._marks.split(prompt.marked) if self._marks else [prompt.marked]
        first, *others = tokenise([part.replace(prompt.marker, "") for part in parts[::2]])
        ids = list(first)
        for mark, piece in zip(parts[1::2], others, strict=True):  # the odd parts are special
            ids += [self._special[mark], *piece]
        return ids

    def _compiled(self) -> Template:
        if self._source is None:
            raise ChatTemplateError(
                "The model has no chat template, and its family has no known chat format. "
                "Use generate or classify with a prompt of your own."
            )
        if self._template is None:  # two threads may both compile it: either result will do
            self._template = compile_template(self._source, self._variables)
        return self._template


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
