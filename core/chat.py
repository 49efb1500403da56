"""Chat prompts in which only the template, never the user, can spell special tokens.

The chat formats of model families are here too, for models without a template of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Self

from core.clock import Check, never_stop
from core.errors import ChatTemplateError
from core.types import Message


class RenderedPrompt(str):
    """A prompt whose special tokens are read as such; a plain string spells none.

    ``RenderedPrompt("<|im_start|>user...")`` is a prompt written by hand: every special token in it
    counts, and no BOS is added to it. Text that is added with ``+`` is plain text, unless it is a
    RenderedPrompt itself; other operations of strings give a plain string.

    ``marked`` is the same text with a ``marker`` character inside each special token that is plain
    text, what a chat message spells for one; removing the marker gives back the prompt. A
    tokenizer reads special tokens from ``marked`` and everything else as plain text.
    """

    marked: str
    marker: str

    def __new__(cls, marked: str, marker: str = "") -> Self:
        marker = marker or _unused_character([marked])
        prompt = super().__new__(cls, marked.replace(marker, ""))
        prompt.marked, prompt.marker = marked, marker
        return prompt

    def __reduce__(self) -> tuple[object, ...]:
        return RenderedPrompt, (self.marked, self.marker)

    def __add__(self, other: str) -> RenderedPrompt:
        marker, mine, others = _marked_alike(self, other)
        return RenderedPrompt(mine + others, marker)

    def __radd__(self, other: str) -> RenderedPrompt:
        marker, mine, others = _marked_alike(self, other)
        return RenderedPrompt(others + mine, marker)

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
    check: Check = never_stop,
) -> RenderedPrompt:
    """Run a chat template over messages whose contents cannot spell a special token.

    ``check`` is asked while that is seen to, and may raise.
    """
    marker = _unused_character([message.content for message in messages])
    spelling = _spelling(tuple(special))
    safe = [replace(m, content=spelling.defused(m.content, marker, check)) for m in messages]
    return RenderedPrompt(template(safe), marker)


_CHECKED = 4096  # suspicious places between two looks at whether the prompt is still wanted


def defuse(text: str, special: Collection[str], marker: str) -> str:
    """Put the marker after the first character of each special token that the text spells."""
    return _spelling(tuple(special)).defused(text, marker, never_stop)


class _Spelling:
    """Finds special tokens in a text: thousands of them in one pass."""

    def __init__(self, special: Collection[str]) -> None:
        self._tokens = {token for token in special if len(token) > 1}
        self._lengths = sorted({len(token) for token in self._tokens})
        first, second = (_any_of(token[place] for token in self._tokens) for place in (0, 1))
        self._first = re.compile(f"{first}(?={second})") if self._tokens else None

    def defused(self, text: str, marker: str, check: Check) -> str:
        """See `defuse`."""
        starts = self._first.finditer(text) if self._first else ()
        pieces, end = [], 0
        for number, start in enumerate(match.start() for match in starts):
            if number % _CHECKED == 0:
                check()
            if any(text[start : start + length] in self._tokens for length in self._lengths):
                pieces += [text[end : start + 1], marker]
                end = start + 1
        return "".join([*pieces, text[end:]])


def _any_of(characters: Iterable[str]) -> str:
    return f"[{re.escape(''.join(sorted(set(characters))))}]"


_spelling = lru_cache(maxsize=16)(_Spelling)


def _marked_alike(prompt: RenderedPrompt, other: str) -> tuple[str, str, str]:
    """One marker, and both texts marked with it: a plain one behind and before every character."""
    if not isinstance(other, str):
        raise TypeError(f"A prompt can be joined with a string, not a {type(other).__name__}.")
    marker = _unused_character([prompt.marked, other, getattr(other, "marked", "")])
    mine = prompt.marked.replace(prompt.marker, marker)
    if isinstance(other, RenderedPrompt):
        return marker, mine, other.marked.replace(other.marker, marker)
    return marker, mine, marker + "".join(letter + marker for letter in other)


def _unused_character(texts: Sequence[str]) -> str:
    # Unicode noncharacters: in no tokenizer's vocabulary and in no sane text.
    for likely in map(chr, range(0xFDD0, 0xFDF0)):
        if not any(likely in text for text in texts):
            return likely
    used = set().union(*texts)
    marker = next((c for c in map(chr, range(0xF0000, 0xFFFFE)) if c not in used), None)
    if marker is None:
        raise ChatTemplateError("The messages use every private character of Unicode.")
    return marker


@dataclass(frozen=True, slots=True)
class ChatFormat:
    """A template for the ``model_types`` whose vocabulary has the special token ``mark``."""

    mark: str
    model_types: frozenset[str]
    template: str


# As in Gemma 3's own template: a system message goes before the first user message.
_GEMMA = ChatFormat(
    "<start_of_turn>",
    frozenset({"gemma", "gemma2", "gemma3", "gemma3_text"}),
    """\
{{ bos_token }}
{%- set prefix = '' -%}
{%- if messages[0].role == 'system' -%}
    {%- set prefix = messages[0].content + '\n\n' -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{ raise_exception('a system message can only come first') }}
    {%- endif -%}
    {{ '<start_of_turn>' + ('model' if message.role == 'assistant' else 'user') + '\n' }}
    {{- (prefix if loop.first else '') + message.content | trim + '<end_of_turn>\n' }}
{%- endfor -%}
{{ '<start_of_turn>model\n' if add_generation_prompt }}""",
)

# https://github.com/openai/openai-python/blob/v0.28.1/chatml.md
_CHATML = ChatFormat(
    "<|im_start|>",
    frozenset({"llama", "qwen2", "qwen3", "smollm3"}),
    """\
{%- for message in messages -%}
    {{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\n' if add_generation_prompt }}""",
)

# https://www.llama.com/docs/model-cards-and-prompt-formats/meta-llama-3/
_LLAMA3 = ChatFormat(
    "<|start_header_id|>",
    frozenset({"llama"}),
    """\
{{ bos_token }}
{%- for message in messages -%}
    {{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {{- message.content | trim + '<|eot_id|>' }}
{%- endfor -%}
{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }}""",
)

FORMATS = (_GEMMA, _CHATML, _LLAMA3)


def family_template(model_type: str, special: Collection[str]) -> str | None:
    """The template of a family whose marks the model has as special tokens; None without one."""
    fitting = (
        item.template for item in FORMATS if model_type in item.model_types and item.mark in special
    )
    return next(fitting, None)
