"""Requests to one server with OpenAI's API, in the variant that its probe has shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.options import GenerateConfig
from core.types import Message

Request = tuple[str, dict[str, Any]]
"""A path and a body."""

HONOURED = frozenset({"temperature"})
"""The sampling options that every such server supports; models refuse all others by name."""

# Servers have defaults of their own, which a greedy answer or a plain draw must not get.
_OFF: Mapping[str, object] = {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
_COLDEST = 1e-6  # is greedy within the rounding of float32, in which servers divide by it
_SEEDS = 2**32 - 1  # llama.cpp takes the last one of 32 bits for none at all


@dataclass(frozen=True, slots=True)
class RequestVariant:
    """A variant of requests. ``model`` is sent unless it is "". ``plain``: only OpenAI's fields.

    ``counts_first``: its streams do not report the prompt's tokens. ``context_length`` is in
    tokens.
    """

    model: str = ""
    plain: bool = False
    counts_first: bool = False
    context_length: int = 4096

    def completion(self, prompt: str, config: GenerateConfig) -> Request:
        """Return the path and the body that continue a prompt."""
        own = {"logprobs": 1} if config.return_logprobs else {}
        return "/v1/completions", {**self._options(config), **own, "prompt": prompt}

    def chat(self, turns: Sequence[Message], config: GenerateConfig) -> Request:
        """Return the path and the body that answer a conversation."""
        own = {"logprobs": True} if config.return_logprobs else {}
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        return "/v1/chat/completions", {**self._options(config), **own, "messages": messages}

    def _options(self, config: GenerateConfig) -> dict[str, Any]:
        body: dict[str, Any] = {
            "max_tokens": config.max_tokens,
            "temperature": config.temperature if config.temperature > _COLDEST else 0.0,
            "top_p": 1.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.model:
            body["model"] = self.model
        if config.seed is not None:
            body["seed"] = config.seed % _SEEDS
        return body if self.plain else {**body, **_OFF}
