"""Saboteurs of chat: of its messages and of their template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from core.kit.chat import RenderedPrompt
from core.messages import checked_conversation
from core.options import ChatOptions, GenerateConfig
from core.protocols import TokenStream
from core.types import Conversation, Message
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


@saboteur("chat-eats-messages", "chat empties the list of messages")
class ChatEatsMessages(ReferenceModel):
    def chat(self, messages: Conversation, *config: Any, **options: Any) -> TokenStream:
        stream = super().chat(messages, *config, **options)
        if isinstance(messages, list):
            messages.clear()
        return stream


@saboteur(
    "chat-guesses-at-mappings", "chat takes what it finds in a mapping, and makes up the rest"
)
class ChatGuessesAtMappings(ReferenceModel):
    def chat(self, messages: Conversation, *config: Any, **options: Any) -> TokenStream:
        return super().chat([_guessed(message) for message in messages], *config, **options)


def _guessed(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    role, content = message["role"], message.get("content", "")
    return Message(role if role in ("system", "assistant") else "user", str(content))


@saboteur("system-dropped", "system messages are left out")
class SystemDropped(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        return super().rendered([m for m in messages if m.role != "system"], config)


@saboteur("last-turn-only", "chat answers the last message alone")
class LastTurnOnly(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        system = [m for m in messages if m.role == "system"]
        return super().rendered([*system, *messages[-1:]], config)


@saboteur("chat-has-two-bos", "chat begins with two BOS")
class ChatHasTwoBos(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        request = self.resolve_request("chat", config, options)
        prompt = self.rendered(checked_conversation(messages), request)
        return self.stream(RenderedPrompt("<s>" + prompt.marked, prompt.marker), request)


@saboteur(
    "long-chats-forget",
    "of a conversation that does not fit, the oldest messages are left out in silence",
)
class LongChatsForget(ReferenceModel):
    def chat(self, messages: Any, *config: Any, **options: Any) -> TokenStream:
        turns = list(messages)
        while len(turns) > 1 and len(self.encode(self.render_chat(turns))) > self._room:
            turns = turns[1:]
        return super().chat(turns, *config, **options)

    @property
    def _room(self) -> int:
        return self.info.context_length


@saboteur("chat-of-nothing", "chat answers a conversation without a message")
class ChatOfNothing(ReferenceModel):
    def chat(self, messages: Any, *config: Any, **options: Any) -> TokenStream:
        return super().chat(messages or [Message("user", "")], *config, **options)


@saboteur(
    "final-messages-are-trimmed", "white space at the end of the message that is continued is lost"
)
class FinalMessagesAreTrimmed(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        if config is not None and config.continue_final_message:
            last = replace(messages[-1], content=messages[-1].content.rstrip())
            messages = [*messages[:-1], last]
        return super().rendered(messages, config)


@saboteur(
    "users-are-continued",
    "continue_final_message takes a message of the user for one to be answered",
)
class UsersAreContinued(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        if config is not None and messages[-1].role != "assistant":
            config = replace(config, continue_final_message=False)
        return super().rendered(messages, config)


@saboteur(
    "unknown-variables-are-dropped", "variables that the chat template never reads are passed over"
)
class UnknownVariablesAreDropped(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        config = config and replace(config, chat_template_kwargs=None)
        return super().rendered(messages, config)


@saboteur(
    "no-variables-are-some",
    "chat with chat_template_kwargs, empty ones too, leaves out the last word of the prompt",
)
class NoVariablesAreSome(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        if options.get("chat_template_kwargs") != {}:
            return super().chat(messages, config, **options)
        request = self.resolve_request("chat", config, options)
        return self.stream(RenderedPrompt("Hello"), request)


_REMEMBERED = 16  # messages


@saboteur("first-turns-forgotten", "of a long conversation the last sixteen messages are rendered")
class FirstTurnsForgotten(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        return super().rendered(messages[-_REMEMBERED:], config)


@saboteur("first-parts-only", "of a content with several parts, the first is read")
class FirstPartsOnly(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        turns: Any = [
            {**turn, "content": turn["content"][:1]}
            if isinstance(turn, dict) and isinstance(turn.get("content"), list)
            else turn
            for turn in messages
        ]
        return super().chat(turns, config, **options)


@saboteur("names-are-dropped", "the name of a message is dropped in silence")
class NamesAreDropped(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        return super().rendered([replace(turn, name=None) for turn in messages], config)


@saboteur(
    "answers-go-on",
    "a conversation that ends with the assistant's message is continued there, unasked",
)
class AnswersGoOn(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        config = config or GenerateConfig()
        if messages[-1].role == "assistant":
            config = replace(config, continue_final_message=True)
        return super().rendered(messages, config)
