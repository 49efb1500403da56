"""Turns a row of input into a prompt: template, chat template, truncation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from core.errors import ChatTemplateError, UnsupportedOperationError
from core.extensions import Tokenizing
from core.options import GenerateConfig
from core.rendering import Rendering
from core.types import Message
from core_cli.reading.row import InputError, Row
from core_tasks.template import TEXT, Template

if TYPE_CHECKING:
    from core.protocols import TextModel
    from core_cli.flags import Side

_GREETING = (Message("user", "Hello"), Message("assistant", "Hi"))


@dataclass(frozen=True)
class PromptMaker:
    """A maker of prompts from rows.

    ``chat`` puts texts through the model's chat template as one user message, after ``system``
    if there is one. Conversations always go through it, with ``rendering``: ``config``
    has its options, ``opening`` the first words of the answer, and after it ``labels`` may be read.
    Conversations that end with the assistant's message are continued, as ``config`` says, or
    answered in a ``new_turn``.
    ``truncation`` shortens long texts. With ``question``, the prompt is a text that a task or head
    will put into a prompt of its own, which is returned for a text.
    """

    model: object
    backend: str
    template: Template | None = None
    chat: bool = False
    system: str | None = None
    truncation: Truncation | None = None
    config: GenerateConfig = field(default_factory=GenerateConfig)
    opening: str = ""
    labels: bool = False
    new_turn: bool = False
    question: Callable[[str], str] | None = None

    @cached_property
    def rendering(self) -> Rendering:
        """Function that renders conversations. Raises `UnsupportedOperationError`."""
        model = self._tokenizing()
        return Rendering(model, self.config, self.opening, labels=self.labels)

    @property
    def variables(self) -> Mapping[str, object]:
        """The variables that the chat template was given for prompts until now."""
        return self.rendering.variables if "rendering" in vars(self) else {}

    def check(self) -> None:
        """Raise `UnsupportedOperationError` if a required tokeniser is missing.

        Raises `core.OptionError` for variables that the chat template does not read.
        """
        if self.chat or self.truncation is not None:
            self._tokenizing("chat templates" if self.chat else "--truncate")
        if self.config.chat_template_kwargs is not None or self.config.continue_final_message:
            turns = _GREETING if self.config.continue_final_message else _GREETING[:1]
            with suppress(ChatTemplateError):  # each row has its own
                self.rendering(turns)

    def prompt(self, row: Row) -> str:
        """Return the prompt of one row. Raises `InputError` or what the chat template raises."""
        if row.messages is not None:
            return self._shortened_conversation(self._conversation(row))
        if self.config.continue_final_message:
            raise InputError(
                f"{row.place} is a text; --continue-final-message requires a conversation that "
                "ends with an assistant message."
            )
        prompt = self._around(row, row.text)
        if self.truncation is None:
            return prompt
        if self.question is not None:
            return self.truncation.shortened(row.text, self.question, self._tokenizing())
        return self.truncation.fitted(
            prompt, row.text, lambda text: self._around(row, text), self._tokenizing()
        )

    def _shortened_conversation(self, messages: list[Message]) -> str:
        """Return the prompt of a conversation, shortening the user's last message."""
        render = self.rendering
        users = [place for place, message in enumerate(messages) if message.role == "user"]
        if self.truncation is None or not users:
            return render(messages)

        def around(text: str) -> str:
            before, after = messages[: users[-1]], messages[users[-1] + 1 :]
            return render([*before, Message("user", text), *after])

        text = messages[users[-1]].content
        return self.truncation.fitted(render(messages), text, around, self._tokenizing())

    def _around(self, row: Row, text: str) -> str:
        if self.template is not None:
            text = self.template.filled(_values(row, text, self.template.fields))
        if not self.chat:
            return text
        return self.rendering([*self._system(), Message("user", text)])

    def _conversation(self, row: Row) -> list[Message]:
        messages = list(row.messages or ())
        if self.template is not None:
            raise InputError(
                f"{row.place} has 'messages', which cannot be combined with --template."
            )
        continues = self.config.continue_final_message
        if messages[-1].role == "assistant" and not (continues or self.new_turn):
            raise InputError(
                f"{row.place} ends with an assistant message. Use --continue-final-message to "
                "continue it, or --new-turn for a new answer."
            )
        if any(message.role == "system" for message in messages):
            return messages  # its own instructions win over --system
        return [*self._system(), *messages]

    def _system(self) -> list[Message]:
        return [] if self.system is None else [Message("system", self.system)]

    def _tokenizing(self, what: str = "chat templates") -> Tokenizing:
        if isinstance(self.model, Tokenizing):
            return self.model
        from core.kit.support import unsupported
        from core.protocols import Capability

        offered_by = unsupported(Capability.TOKENIZING, self.backend).offered_by
        raise UnsupportedOperationError(what, self.backend, offered_by)


def _values(row: Row, text: str, fields: Iterable[str]) -> dict[str, str]:
    """Return the fields of a row, ``text`` in place of its own. Raises `InputError` for a gap."""
    values = {TEXT: text}
    for name in fields:
        if name == TEXT:
            continue
        if (value := row.value(name)) is None:
            raise InputError(f"{row.place} has no field {name!r}, which --template uses.")
        if not isinstance(value, str):
            value = json.dumps(value, ensure_ascii=False, default=str)
        values[name] = value
    return values


_GUESS = 8
"""Usual maximum of characters per token; more are used if these are too few."""
_SPARE = 512
"""One of this many tokens may stay unused; a search for the last character would cost more."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """A limit for prompts: texts are cut so that prompts have at most ``limit`` tokens.

    ``side`` is the part to drop: the beginning (left), the end (right) or the middle. The rest of
    the text is unchanged, and the template is always kept.
    """

    side: Side
    limit: int

    def fitted(
        self, prompt: str, text: str, around: Callable[[str], str], model: Tokenizing
    ) -> str:
        """Return a prompt that fits.

        Raises `InputError` if not even one character of the text fits.
        """
        if len(prompt.encode(errors="replace")) < self.limit:
            return prompt  # a token is a byte at least

        # Look at as much of the text as is too much: of a very long one that is a small part.
        most = self.limit * _GUESS
        while most < len(text):
            over = len(model.encode(around(self._part(text, most))))
            if over > self.limit:
                break
            most *= 2
        else:
            most, over = len(text), len(model.encode(prompt))
            if over <= self.limit:
                return prompt
        return self._longest(text, around, model, most, over)

    def shortened(self, text: str, around: Callable[[str], str], model: Tokenizing) -> str:
        """Return the text, shortened so that ``around`` it there is a prompt that fits."""
        texts: dict[str, str] = {}

        def noted(part: str) -> str:
            prompt = around(part)
            texts[prompt] = part
            return prompt

        return texts[self.fitted(noted(text), text, noted, model)]

    def _longest(
        self,
        text: str,
        around: Callable[[str], str],
        model: Tokenizing,
        most: int,
        over: int,
    ) -> str:
        """Return the prompt with as many characters as fit; ``most`` make ``over`` tokens."""
        best, least = around(self._part(text, 1)), 1
        under = len(model.encode(best))
        if under > self.limit:
            raise InputError(
                f"The prompt is too long even with one character of the text: {under} tokens; "
                f"{self.limit} fit. Shorten the template, or set a larger --context-len."
            )

        # Interpolate between both ends of the range; bisect if that makes no progress.
        for number in range(most.bit_length() * 2):
            if self.limit - under <= self.limit // _SPARE or most - least <= 1:
                break
            share = (self.limit - under) / (over - under) if number % 3 < 2 else 0.5
            count = min(max(least + int((most - least) * share), least + 1), most - 1)
            tried = around(self._part(text, count))
            size = len(model.encode(tried))
            if size <= self.limit:
                best, least, under = tried, count, size
            else:
                most, over = count, size
        return best

    def _part(self, text: str, count: int) -> str:
        if self.side == "right":
            return text[:count]
        if self.side == "left":
            return text[len(text) - count :]
        return text[: (count + 1) // 2] + text[len(text) - count // 2 :]


def longest_label(model: TextModel, labels: Sequence[str]) -> int:
    """Return the tokens that a prompt leaves for the longest label, with some to join them."""
    from core.kit.support import compares_sentences

    if compares_sentences(model):  # a label sentence is read by itself
        return 0
    sizes = [len(model.encode(label)) for label in labels] if isinstance(model, Tokenizing) else []
    return max(sizes, default=1) + 2
