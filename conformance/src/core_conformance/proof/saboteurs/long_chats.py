"""Saboteurs of long conversations: turns that are lost in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from core.kit.chat import RenderedPrompt
from core.messages import checked_conversation
from core.options import (
    ChatOptions,
    GenerateConfig,
)
from core.protocols import TokenStream
from core.types import Conversation, Message
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel

_REMEMBERED = 16  # messages


@saboteur("first-turns-forgotten", "of a long conversation the last sixteen messages are rendered")
class FirstTurnsForgotten(ReferenceModel):
    def rendered(
        self, messages: Sequence[Message], config: GenerateConfig | None = None, /
    ) -> RenderedPrompt:
        return super().rendered(messages[-_REMEMBERED:], config)


@saboteur(
    "messages-of-200-characters",
    "of a message chat reads 200 characters; render_chat shows all of it",
)
class MessagesOf200Characters(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        turns = checked_conversation(messages)
        cut = [Message(turn.role, turn.content[:200]) for turn in turns]
        return super().chat(cut, config, **options)


@saboteur(
    "first-turn-unread",
    "chat leaves out the first of more than sixteen messages; render_chat shows it",
)
class FirstTurnUnread(ReferenceModel):
    def chat(
        self,
        messages: Conversation,
        config: GenerateConfig | None = None,
        /,
        **options: Unpack[ChatOptions],
    ) -> TokenStream:
        turns = checked_conversation(messages)
        return super().chat(turns[len(turns) > _REMEMBERED :], config, **options)
