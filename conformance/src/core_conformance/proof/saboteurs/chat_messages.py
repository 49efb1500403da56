"""Saboteurs of a message's forms: lost parts and names, a last turn continued unasked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

from core.kit.chat import RenderedPrompt
from core.options import ChatOptions, GenerateConfig
from core.protocols import TokenStream
from core.types import Conversation, Message
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


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
