"""Saboteurs of a chat template's options: passed over, trimmed, or taken where they do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from core.kit.chat import RenderedPrompt
from core.options import ChatOptions, GenerateConfig
from core.protocols import TokenStream
from core.types import Conversation, Message
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


@saboteur(
    "chat-answers-final-messages",
    "chat begins a new turn after the message that it is to continue; render_chat does not",
)
class ChatAnswersFinalMessages(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        request = self.resolve_request("chat", config, options)
        if messages and isinstance(messages[-1], Message) and messages[-1].role == "assistant":
            request = replace(request, continue_final_message=False)
        return super().chat(messages, request)


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
