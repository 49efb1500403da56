"""Saboteurs of chat: turns that are lost, merged or misread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from core.kit.chat import RenderedPrompt
from core.messages import checked_conversation
from core.options import (
    ChatOptions,
    GenerateConfig,
)
from core.protocols import TokenStream
from core.types import Conversation, Message
from core_conformance.proof.registry import saboteur
from core_conformance.proof.saboteurs.history import TakesAll
from core_conformance.reference.optional import ReferenceModel

_OF_AN_ANSWER = 10  # tokens: more than the question has, less than with half the answer


@saboteur("turns-are-merged", "chat fails on messages of the assistant")
class TurnsAreMerged(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        if any(message.role == "assistant" for message in messages):
            raise KeyError("assistant")
        return super().rendered(messages, config)


@saboteur("chat-eats-messages", "chat empties the list of messages")
class ChatEatsMessages(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        stream = super().chat(messages, config, **options)
        if isinstance(messages, list):
            messages.clear()
        return stream


@saboteur("chat-takes-no-mappings", "chat wants each turn to be a Message")
class ChatTakesNoMappings(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        if any(isinstance(message, dict) for message in messages):
            raise TypeError("chat() takes core.Message only")
        return super().chat(messages, config, **options)


@saboteur(
    "chat-guesses-at-mappings", "chat takes what it finds in a mapping, and makes up the rest"
)
class ChatGuessesAtMappings(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        return super().chat([_guessed(message) for message in messages], config, **options)


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
    "last-answer-is-kept",
    "the answer that was given stays in the state, whatever a later turn says it was",
)
class LastAnswerIsKept(TakesAll):
    least = _OF_AN_ANSWER


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
