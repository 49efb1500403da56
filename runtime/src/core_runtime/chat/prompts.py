"""Chat templates: the model's own, or the format of its family, rendered outside this process.

A template comes with the model and is an untrusted program. It runs in jinja's sandbox
(`core_runtime.chat.sandbox`) in a separate process (`core_runtime.chat.worker`) with little memory
and no access to this program, which is killed if it takes too long or the caller stops waiting.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from core.errors import ChatTemplateError
from core.kit.base import Check, never_stop
from core.kit.chat import RenderedPrompt, render, unread_variable
from core.messages import checked_conversation
from core.options import GenerateConfig
from core.types import Conversation, Message
from core_runtime.chat.frames import MAX_MEMORY_BYTES, NO_MEMORY, PROMPT, encoded
from core_runtime.chat.pool import shared_processes
from core_runtime.chat.process import ProcessTooSlow

MAX_LENGTH = 10_000_000
"""Characters of a template, and of all messages together."""
MAX_SECONDS = 5.0
"""The CPU time of one rendering."""
Tokenise = Callable[[list[str]], list[list[int]]]
_NO_OPTIONS = GenerateConfig()


class ChatTemplate:
    """A function from messages to prompt. Safe to use from several threads.

    ``variables``: ``bos_token`` and the like.
    """

    def __init__(self, source: str, variables: Mapping[str, str]) -> None:
        self._source, self._variables = source, dict(variables)
        self._processes = shared_processes()
        self._reads: frozenset[str] | None = None

    def __call__(
        self,
        messages: Sequence[Message],
        check: Check = never_stop,
        *,
        variables: Mapping[str, object] | None = None,
        asks: bool = True,
        now: datetime | None = None,
    ) -> str:
        """Render these messages, polling ``check``.

        ``variables`` are the caller's, and win. ``asks``: the text ends where the assistant's next
        turn begins. ``now`` is the time for the template. Raises `ChatTemplateError` for a template
        that fails on these messages or needs too much time or memory.
        """
        turns = [message.to_dict() for message in messages]
        return self._rendered(check, turns, {**self._variables, **(variables or {})}, asks, now)

    def compile(self, check: Check) -> None:
        """Raise `ChatTemplateError` if the template cannot be parsed."""
        if len(self._source) > MAX_LENGTH:
            raise ChatTemplateError(
                f"The model's chat template is broken: it has {len(self._source)} characters."
            )
        self._rendered(check)

    def check_variables(self, names: Iterable[str], check: Check) -> None:
        """Raise `core.InvalidOptionError` for the first name that the template never reads."""
        if self._reads is None:
            try:
                self._reads = frozenset(map(str, json.loads(self._rendered(check, names=True))))
            except (ValueError, TypeError):
                raise ChatTemplateError(
                    "The process that renders the model's chat template sent an invalid answer."
                ) from None
        for name in names:
            if name not in self._reads:
                raise unread_variable(name, self._reads)

    def _rendered(
        self,
        check: Check,
        messages: list[dict[str, str]] | None = None,
        variables: Mapping[str, object] | None = None,
        asks: bool = True,
        now: datetime | None = None,
        names: bool = False,
    ) -> str:
        request = {
            "source": self._source,
            "variables": variables,
            "messages": messages,
            "asks": asks,
            "names": names,
            "now": (now or datetime.now()).isoformat(),
            "seconds": MAX_SECONDS,
        }
        data = encoded(json.dumps(request, ensure_ascii=False))

        try:
            kind, text = self._processes.ask(data, check)
        except ProcessTooSlow:
            raise ChatTemplateError(
                f"The model's chat template was stopped: it computed for {MAX_SECONDS:g} s."
            ) from None

        if kind == NO_MEMORY:
            megabytes = MAX_MEMORY_BYTES // 1024**2
            raise ChatTemplateError(f"The model's chat template needs more than {megabytes} MB.")
        if kind != PROMPT:
            raise ChatTemplateError(text)
        return text


def check_length(
    messages: Sequence[Message], variables: Mapping[str, object] | None = None
) -> None:
    """Raise `ChatTemplateError` for messages longer than any prompt may be."""
    length = sum(len(message.content) + len(message.name or "") for message in messages)
    if variables is not None:
        length += len(json.dumps(variables, ensure_ascii=False))
    if length > MAX_LENGTH:
        raise ChatTemplateError(
            f"The messages have {length} characters, and may have {MAX_LENGTH}. Shorten them."
        )


def compile_template(
    source: str, variables: Mapping[str, str], check: Check = never_stop
) -> ChatTemplate:
    """Return a parsed template. Raises `ChatTemplateError` if it cannot be parsed."""
    template = ChatTemplate(source, variables)
    template.compile(check)
    return template


class ChatPrompts:
    """The chat prompts of one model, rendered and tokenised. Safe to use from several threads.

    ``template``: its source, or None. ``variables``: ``bos_token`` and similar ones.
    ``special``: the ids of the special tokens, by their texts.
    """

    def __init__(
        self, template: str | None, variables: Mapping[str, str], special: Mapping[str, int]
    ) -> None:
        self._source, self._variables, self._special = template, variables, special
        self._marks = _any_of(special)
        self._template: ChatTemplate | None = None

    def render(
        self,
        messages: Conversation,
        check: Check = never_stop,
        config: GenerateConfig | None = None,
        *,
        asks: bool = True,
    ) -> RenderedPrompt:
        """Return the prompt that ends at the start of the assistant's next turn.

        ``config`` has the template's variables, and may continue the last message instead; without
        ``asks`` the prompt is only the messages. ``check`` is polled many times a second. Raises
        `ChatTemplateError` if the model has no template, or the template fails or needs too much,
        `core.InvalidOptionError` for a variable that it never reads.
        """
        turns = checked_conversation(messages)
        config = config or _NO_OPTIONS
        asks = asks and not config.continue_final_message
        check_length(turns, config.chat_template_kwargs)
        template, now = self._compiled(check), datetime.now()
        if config.chat_template_kwargs is not None:
            template.check_variables(config.chat_template_kwargs, check)

        def written(turns: list[Message], variables: Mapping[str, object] | None = None) -> str:
            return template(turns, check, variables=variables, asks=asks, now=now)

        return render(turns, self._special, written, check, config)

    def close(self) -> None:
        """Release the rendering process; it ends with its last user."""
        self._template = None

    def encode(self, prompt: RenderedPrompt, tokenise: Tokenise) -> list[int]:
        """Return the token ids of a prompt.

        Only special tokens written by the template are special.

        ``tokenise`` returns the ids of plain texts, without a BOS; a text may be empty.
        """
        parts = self._marks.split(prompt.marked) if self._marks else [prompt.marked]
        first, *others = tokenise([part.replace(prompt.marker, "") for part in parts[::2]])
        ids = list(first)
        for mark, piece in zip(parts[1::2], others, strict=True):  # the odd parts are special
            ids += [self._special[mark], *piece]
        return ids

    def _compiled(self, check: Check) -> ChatTemplate:
        if self._source is None:
            raise ChatTemplateError(
                "The model has no chat template, and its family has no known chat format. "
                "Use generate or classify with your own prompt."
            )
        template = self._template
        if template is None:  # two threads may both compile it: either result will do
            self._template = template = compile_template(self._source, self._variables, check)
        return template


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if longest_first else None
