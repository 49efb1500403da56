"""`CoreModel` and `AsyncCoreModel`: a discovered model as ``llm`` asks its models."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import Any, cast

import llm
from llm.parts import TextPart
from pydantic import Field, create_model

import core
from core.sampling_options import SAMPLING_OPTIONS
from core.shared_models import shared_model
from core.types import Role

_SAMPLING: dict[str, Any] = {
    option.name: (option.kind | None, Field(default=None, description=option.help))
    for option in SAMPLING_OPTIONS
}
_OTHERS: dict[str, Any] = {
    "max_tokens": (int | None, Field(default=None, description="Tokens at most; 256.")),
    "stop": (str | list[str] | None, Field(default=None, description="What ends the answer.")),
    "timeout": (float | None, Field(default=None, description="Seconds for the whole answer.")),
    "backend": (str | None, Field(default=None, description="Which backend loads the model.")),
}
Options: Any = create_model("Options", __base__=llm.Options, **_OTHERS, **_SAMPLING)
"""What ``-o`` takes: core's table of options, and which backend; wrong values are core's errors."""


class _Chatting:
    """What both models have: the stream of an answer, and what it came to."""

    needs_key = None
    can_stream = True

    class Options(Options):  # type: ignore[misc]
        """Options of core, by their names there."""

    def __init__(self, model_id: str, path: str) -> None:
        self.model_id, self.path = model_id, path

    def _begin(self, prompt: llm.Prompt, cancel: core.CancelToken | None) -> core.TokenStream:
        """The answer to a conversation. The model is loaded once for a process."""
        asked: Mapping[str, Any] = prompt.options.model_dump(exclude_none=True)
        options = {name: value for name, value in asked.items() if name != "backend"}
        model = shared_model(self.path, asked.get("backend", ""))
        turns = [core.Message(cast("Role", each.role), _text(each)) for each in prompt.messages]
        return model.chat(turns, cancel=cancel, **options)

    def _ended(self, stream: core.TokenStream, response: Any) -> None:
        cost = stream.metrics
        cached = {"cached_tokens": cost.cached_prompt_tokens}
        response.set_usage(input=cost.prompt_tokens, output=cost.generated_tokens, details=cached)
        response.response_json = {
            "finish_reason": stream.finish_reason,
            "metrics": cost.to_dict(),
        }


class CoreModel(_Chatting, llm.Model):  # type: ignore[misc]
    """A model of this machine."""

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any
    ) -> Iterator[str]:
        """The answer's text: token by token, or as one where nobody streams."""
        tokens = self._begin(prompt, None)
        try:
            if stream:
                yield from (token.text for token in tokens)
            else:
                yield tokens.text()
        finally:
            tokens.close()
        self._ended(tokens, response)


class AsyncCoreModel(_Chatting, llm.AsyncModel):  # type: ignore[misc]
    """The same, awaited; a task that is cancelled ends the answer."""

    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.AsyncResponse, conversation: Any
    ) -> AsyncGenerator[str, None]:
        """The answer's text: token by token, or as one where nobody streams."""
        cancel = threading.Event()
        try:
            tokens = await asyncio.to_thread(self._begin, prompt, cancel)
            if not stream:
                yield await asyncio.to_thread(tokens.text)
            while (token := await asyncio.to_thread(next, tokens, None)) is not None:
                yield token.text
        finally:
            cancel.set()
        self._ended(tokens, response)


def _text(message: llm.Message) -> str:
    """The text of a turn. Raises `core.RequestError` for what is no text."""
    said = []
    for part in message.parts:
        if not isinstance(part, TextPart):
            kind = type(part).__name__
            raise core.RequestError(f"A {kind} cannot be read: models here read text alone.")
        said.append(part.text)
    return "".join(said)
