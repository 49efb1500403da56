"""LangChain's messages as core's, and core's tokens as LangChain's chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import (
    AIMessageChunk,
    BaseMessage,
    convert_to_openai_messages,
    is_data_content_block,
)
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk
from pydantic import BaseModel

import core
from core.aio import AsyncTokens
from core.wires import generation


def turns(messages: Sequence[BaseMessage]) -> tuple[core.Message, ...]:
    """A conversation as core's chat takes it; names of speakers are left out.

    Raises `core.RequestError` for what is no text, for tools and for roles of none.
    """
    told = convert_to_openai_messages(messages)
    bare = [{key: value for key, value in turn.items() if key != "name"} for turn in told]
    return generation.read_chat({"model": "", "messages": bare}).messages


def chunk(token: core.Token) -> ChatGenerationChunk:
    """A token, with its log-probability where that was asked for."""
    said = {"token": token.text, "logprob": token.logprob}
    info = None if token.logprob is None else {"logprobs": {"content": [said]}}
    return ChatGenerationChunk(message=AIMessageChunk(content=token.text), generation_info=info)


def end(stream: core.TokenStream | AsyncTokens, model: str) -> ChatGenerationChunk:
    """The last chunk: no text, but what the answer cost and why it ended."""
    cost = stream.metrics
    usage = UsageMetadata(
        input_tokens=cost.prompt_tokens,
        output_tokens=cost.generated_tokens,
        total_tokens=cost.prompt_tokens + cost.generated_tokens,
        input_token_details={"cache_read": cost.cached_prompt_tokens},
    )
    message = AIMessageChunk(content="", usage_metadata=usage, chunk_position="last")
    info = {"finish_reason": stream.finish_reason, "model_name": model}
    return ChatGenerationChunk(message=message, generation_info=info)


def plain(value: Any) -> Any:
    """A state or a question as JSON. Raises `core.RequestError` for images, sound and files."""
    if isinstance(value, BaseMessage):
        return plain(convert_to_openai_messages(value))
    if isinstance(value, BaseModel):
        return plain(value.model_dump(exclude_none=True))
    if isinstance(value, Mapping):
        if is_data_content_block(dict(value)) or value.get("type") in ("image_url", "input_audio"):
            raise core.RequestError(
                f"A block of type {value['type']!r} cannot be read: models here read text alone."
            )
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value
