"""Chat prompts in which only the template, never the user's text, produces special tokens.

It also has the chat formats of model families, for models without their own template.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Self

from core.errors import ChatTemplateError, InvalidOptionError
from core.kit.base import Check, never_stop
from core.options import GenerateConfig
from core.types import Choice, Message

_NO_OPTIONS = GenerateConfig()


class RenderedPrompt(str):
    """A prompt whose special tokens are read as special tokens, unlike those in a plain string.

    ``RenderedPrompt("<|im_start|>user...")`` is a prompt written by hand: every special token in it
    is special, and no BOS is added. Text added with ``+`` is plain text, unless it is itself a
    RenderedPrompt; other string operations return a plain string.

    ``marked`` is the same text with a ``marker`` character inside each special token that is only
    plain text, such as one in a chat message; removing the marker restores the prompt. A tokenizer
    finds special tokens in ``marked`` and reads everything else as plain text.
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
        """Return this prompt with plain text appended."""
        return RenderedPrompt(self.marked + defuse(continuation, special, self.marker), self.marker)


def continued(prompt: str, continuations: Sequence[str], special: Collection[str]) -> list[str]:
    """Return the prompt with each continuation appended; its ``special`` tokens are plain text."""
    if isinstance(prompt, RenderedPrompt):
        return [prompt.extended(continuation, special) for continuation in continuations]
    return [prompt + continuation for continuation in continuations]


def render(
    messages: Sequence[Message],
    special: Collection[str],
    template: Callable[..., str],
    check: Check = never_stop,
    config: GenerateConfig | None = None,
) -> RenderedPrompt:
    """Render messages with a chat template; special tokens in their contents stay plain text.

    ``template`` is called with the messages, and with a mapping of template variables if
    ``config`` has some; if the final message is continued, it must add no generation prompt.
    ``check`` is called in between, and may raise. Raises `ChatTemplateError`.
    """
    config = config or _NO_OPTIONS
    variables, continues = config.chat_template_kwargs, config.continue_final_message
    check_continued(messages, config)

    texts = [text for m in messages for text in (m.content, m.name or "")]
    texts.append("" if variables is None else json.dumps(variables, ensure_ascii=False))
    marker = _unused_character(texts)
    spelling = _spelling(tuple(special))

    def safe(text: str) -> str:
        return spelling.defused(text, marker, check)

    turns = [replace(m, content=safe(m.content), name=m.name and safe(m.name)) for m in messages]
    arguments = _safe_variables(variables, safe)
    tag = content = ""
    if continues:  # a character that shows where the content ends, and keeps white space there
        tag, content = _unused_character([*texts, marker]), turns[-1].content
        turns[-1] = replace(turns[-1], content=content + tag)

    text = template(turns, *arguments)
    for place, message in enumerate(messages):
        if message.name is not None and _same_without_name(place, turns, text, template, arguments):
            refuse_names([message])
    return RenderedPrompt(_until(text, tag, content) if continues else text, marker)


def check_continued(messages: Sequence[Message], config: GenerateConfig) -> None:
    """Raise `ChatTemplateError` if the last message is to be continued but not the assistant's."""
    last = messages[-1].role if messages else "user"
    if config.continue_final_message and last != "assistant":
        raise ChatTemplateError(
            f"continue_final_message requires that the last message is the assistant's, not the "
            f"{last}'s. End with an assistant message, or omit the option."
        )


def unread_variable(name: str, reads: Collection[str]) -> InvalidOptionError:
    """Return the error of a variable that a chat template does not read; ``reads`` are its own.

    Its ``value`` is the variable's name.
    """
    known = ", ".join(sorted(reads)) or "none"
    close = difflib.get_close_matches(name, reads, n=1)
    hint = f"; did you mean {close[0]!r}" if close else ""
    expected = f"a variable that the model's chat template reads ({known}){hint}"
    return InvalidOptionError("chat_template_kwargs", name, expected)


def refuse_variables(config: GenerateConfig) -> None:
    """Raise `InvalidOptionError` for any variable: the chat template reads none."""
    for name in config.chat_template_kwargs or ():
        raise unread_variable(name, ())


def refuse_names(
    messages: Sequence[Message], reason: str = "The model's chat template has no place"
) -> None:
    """Raise `ChatTemplateError` for a message with a name, which the template does not support."""
    for message in messages:
        if message.name is not None:
            raise ChatTemplateError(
                f"{reason} for a message's name ({message.name!r:.60}). Remove it, or write it "
                "into the content."
            )


def _same_without_name(
    place: int,
    turns: Sequence[Message],
    text: str,
    template: Callable[..., str],
    arguments: tuple[object, ...],
) -> bool:
    """Return whether the prompt of these turns does not depend on one's name."""
    others = [*turns[:place], replace(turns[place], name=None), *turns[place + 1 :]]
    try:
        return template(others, *arguments) == text
    except ChatTemplateError:  # the template requires a name
        return False


def _until(text: str, tag: str, content: str) -> str:
    """Return the text up to the tag, with the content before it as it is."""
    before, *others = text.split(tag)
    trimmed = content.lstrip()
    if len(others) == 1 and before.endswith(trimmed):
        own = content if before.endswith(content) else trimmed
        return before[: len(before) - len(own)] + content
    how = "repeats it" if len(others) > 1 else "changes or omits part of it"
    raise ChatTemplateError(
        f"The last message cannot be continued: the model's chat template {how}. Render the "
        "messages before it, and append its text to that prompt."
    )


_DEEPEST = 200  # levels of nested template variables


def _safe_variables(
    variables: Mapping[str, object] | None, safe: Callable[[str], str]
) -> tuple[dict[str, object], ...]:
    """Return the variables as a template's argument, ``safe`` applied to each string, or nothing.

    Raises `InvalidOptionError` for some that are nested too deeply.
    """

    def mapped(value: Any, depth: int) -> Any:
        if depth > _DEEPEST:  # Python's own limit depends on its version and on the caller
            expected = "values that are nested less deeply"
            raise InvalidOptionError("chat_template_kwargs", "...", expected)
        if isinstance(value, dict):
            return {safe(name): mapped(item, depth + 1) for name, item in value.items()}
        if isinstance(value, list):
            return [mapped(item, depth + 1) for item in value]
        return safe(value) if isinstance(value, str) else value

    return () if variables is None else ({k: mapped(it, 0) for k, it in variables.items()},)


_CHECKED = 4096  # candidate positions between two checks whether to stop


def defuse(text: str, special: Collection[str], marker: str) -> str:
    """Insert the marker after the first character of each special token in the text."""
    return _spelling(tuple(special)).defused(text, marker, never_stop)


class _Spelling:
    """Finds special tokens in a text: thousands of them in one pass."""

    def __init__(self, special: Collection[str]) -> None:
        self._tokens = {token for token in special if len(token) > 1}
        self._lengths = sorted({len(token) for token in self._tokens})
        first, second = (_any_of(token[place] for token in self._tokens) for place in (0, 1))
        self._first = re.compile(f"{first}(?={second})") if self._tokens else None

    def defused(self, text: str, marker: str, check: Check) -> str:
        """Do `defuse`."""
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
    """Return one marker, and both texts marked with it; plain text around every character."""
    if not isinstance(other, str):
        raise TypeError(f"A prompt can only be joined with a string, not a {type(other).__name__}.")
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

    name: str
    mark: str
    model_types: frozenset[str]
    template: str


# As in Gemma 3's own template: a system message goes before the first user message.
_GEMMA = ChatFormat(
    "Gemma",
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
    "ChatML",
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
    "Llama 3",
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

NO_TEMPLATE = "the model has no chat template of its own, and may be a base model"

FORMATS = (_GEMMA, _CHATML, _LLAMA3)


def family_template(model_type: str, special: Collection[str]) -> str | None:
    """Return the template of a family whose marks the model has as special tokens.

    None without one.
    """
    fitting = (
        item.template for item in FORMATS if model_type in item.model_types and item.mark in special
    )
    return next(fitting, None)


def borrowed_format(template: str | None) -> tuple[Choice, ...]:
    """Return the load's choice for a template of `family_template`; nothing for any other one."""
    name = next((item.name for item in FORMATS if item.template == template), None)
    if name is None:
        return ()
    return (Choice("chat_template", name, NO_TEMPLATE),)
