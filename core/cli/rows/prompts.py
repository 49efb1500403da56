"""From a row of input to the prompt that the model reads: template, chat template, length."""

from __future__ import annotations

from dataclasses import dataclass

from core.cli.reading.row import InputError, Row
from core.cli.rows.template import Template
from core.cli.rows.truncation import Truncation
from core.errors import UnsupportedOperationError
from core.extensions import Tokenizing
from core.types import Message


@dataclass(frozen=True, slots=True)
class PromptMaker:
    """Makes the prompts of rows.

    ``chat`` puts texts through the model's chat template as one user message, after ``system``
    if there is one. Conversations always go through it. ``truncation`` shortens long texts.
    """

    model: object
    backend: str
    template: Template | None = None
    chat: bool = False
    system: str | None = None
    truncation: Truncation | None = None

    def check(self) -> None:
        """Raise `UnsupportedOperationError` when a tokeniser is wanted and not offered."""
        if self.chat or self.truncation is not None:
            self._tokenizing("chat templates" if self.chat else "--truncate")

    def prompt(self, row: Row) -> str:
        """The prompt of one row. Raises `InputError` or what the chat template raises."""
        if row.messages is not None:
            return self._shortened_conversation(self._conversation(row))
        prompt = self._around(row, row.text)
        if self.truncation is None:
            return prompt
        return self.truncation.fitted(
            prompt, row.text, lambda text: self._around(row, text), self._tokenizing()
        )

    def _shortened_conversation(self, messages: list[Message]) -> str:
        """The prompt of a conversation, of which the user's last message is what is shortened."""
        render = self._tokenizing().render_chat
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
        return self._tokenizing().render_chat([*self._system(), Message("user", text)])

    def _conversation(self, row: Row) -> list[Message]:
        messages = list(row.messages or ())
        if self.template is not None:
            raise InputError(f"{row.place} has 'messages', which --template cannot be applied to.")
        if any(message.role == "system" for message in messages):
            return messages  # its own instructions win over --system
        return [*self._system(), *messages]

    def _system(self) -> list[Message]:
        return [] if self.system is None else [Message("system", self.system)]

    def _tokenizing(self, what: str = "chat templates") -> Tokenizing:
        if isinstance(self.model, Tokenizing):
            return self.model
        from core.protocols import Capability
        from core.support import unsupported

        offered_by = unsupported(Capability.TOKENIZING, self.backend).offered_by
        raise UnsupportedOperationError(what, self.backend, offered_by)
