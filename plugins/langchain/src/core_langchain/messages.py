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
from core_wires import generation


def turns(messages: Sequence[BaseMessage]) -> tuple[core.Message, ...]:
    """Return a conversation for core's chat; names of speakers are omitted.

    Raises `core.RequestError` for content other than text, for tools and for unknown roles.
    """
    records = convert_to_openai_messages(messages)
    bare = [{key: value for key, value in turn.items() if key != "name"} for turn in records]
    return generation.read_chat({"model": "", "messages": bare}).messages


def chunk(token: core.Token) -> ChatGenerationChunk:
    """Return a token, with its log-probability if requested."""
    record = {"token": token.text, "logprob": token.logprob}
    info = None if token.logprob is None else {"logprobs": {"content": [record]}}
    return ChatGenerationChunk(message=AIMessageChunk(content=token.text), generation_info=info)


def end(stream: core.TokenStream | AsyncTokens, model: str) -> ChatGenerationChunk:
    """Return the last chunk, without text, but with the usage and the finish reason."""
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
    """Return a state or a question as JSON.

    Raises `core.RequestError` for images, sound and files.
    """
    if isinstance(value, BaseMessage):
        return plain(convert_to_openai_messages(value))
    if isinstance(value, BaseModel):
        return plain(value.model_dump(exclude_none=True))
    if isinstance(value, Mapping):
        if is_data_content_block(dict(value)) or value.get("type") in ("image_url", "input_audio"):
            raise core.RequestError(
                f"Unsupported content block of type {value['type']!r}: models only read text."
            )
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item) for item in value]
    return value
