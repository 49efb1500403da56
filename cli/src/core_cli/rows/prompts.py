"""Turns a row of input into a prompt: template, chat template, truncation."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from core.errors import ChatTemplateError, UnsupportedOperationError
from core.extensions import Tokenizing
from core.options import GenerateConfig
from core.rendering import Rendering
from core.types import Message
from core_cli.reading.row import InputError, Row
from core_cli.rows.template import Template
from core_cli.rows.truncation import Truncation

_GREETING = (Message("user", "Hello"), Message("assistant", "Hi"))


@dataclass(frozen=True)
class PromptMaker:
    """A maker of prompts from rows.

    ``chat`` puts texts through the model's chat template as one user message, after ``system``
    if there is one. Conversations always go through it, with ``rendering``: ``config``
    has its options, ``opening`` the first words of the answer, and after it ``labels`` may be read.
    Conversations that end with the assistant's message are continued, as ``config`` says, or
    answered in a ``new_turn``.
    ``truncation`` shortens long texts.
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
            text = self.template.filled(row, text)
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
