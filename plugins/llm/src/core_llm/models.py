"""`CoreModel` and `AsyncCoreModel`: a discovered model as a model of ``llm``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, cast

import llm
from llm.parts import TextPart
from pydantic import Field, create_model

import core
from core import aio
from core.aio.calls import in_thread
from core.api import shared_model
from core.sampling_options import SAMPLING_OPTIONS
from core.types import Role

_SAMPLING: dict[str, Any] = {
    option.name: (option.kind | None, Field(default=None, description=option.help))
    for option in SAMPLING_OPTIONS
}
_OTHERS: dict[str, Any] = {
    "max_tokens": (
        int | None,
        Field(default=None, description="Maximum number of tokens; default 256."),
    ),
    "stop": (str | list[str] | None, Field(default=None, description="Text that ends the answer.")),
    "timeout": (float | None, Field(default=None, description="Seconds for the entire answer.")),
    "backend": (str | None, Field(default=None, description="Backend that loads the model.")),
}
Options: Any = create_model("Options", __base__=llm.Options, **_OTHERS, **_SAMPLING)
"""The options of ``-o``: core's table, and the backend; invalid values raise core's errors."""


class _Chatting:
    """The base of both models: the stream of an answer, and its usage."""

    needs_key = None
    can_stream = True

    class Options(Options):  # type: ignore[misc]
        """Options of core, by their names there."""

    def __init__(self, model_id: str, path: str) -> None:
        self.model_id, self.path = model_id, path

    def _model(self, prompt: llm.Prompt) -> core.TextModel:
        """Return the model, which is loaded once per process."""
        return shared_model(self.path, getattr(prompt.options, "backend", None) or "")

    def _turns_and_options(self, prompt: llm.Prompt) -> tuple[list[core.Message], dict[str, Any]]:
        """Return the conversation and its options, for core's ``chat``."""
        options: dict[str, Any] = prompt.options.model_dump(exclude_none=True, exclude={"backend"})
        return [core.Message(cast("Role", m.role), _text(m)) for m in prompt.messages], options

    def _ended(self, stream: core.TokenStream | aio.AsyncTokens, response: Any) -> None:
        cost = stream.metrics
        cached = {"cached_tokens": cost.cached_prompt_tokens}
        response.set_usage(input=cost.prompt_tokens, output=cost.generated_tokens, details=cached)
        response.response_json = {
            "finish_reason": stream.finish_reason,
            "metrics": cost.to_dict(),
        }


class CoreModel(_Chatting, llm.Model):  # type: ignore[misc]
    """A model on this machine."""

    def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.Response, conversation: Any
    ) -> Iterator[str]:
        """Yield the answer's text: token by token, or as one where nobody streams."""
        turns, options = self._turns_and_options(prompt)
        tokens = self._model(prompt).chat(turns, **options)
        try:
            if stream:
                yield from (token.text for token in tokens)
            else:
                yield tokens.text()
        finally:
            tokens.close()
        self._ended(tokens, response)


class AsyncCoreModel(_Chatting, llm.AsyncModel):  # type: ignore[misc]
    """The asynchronous variant; a cancelled task ends the answer."""

    async def execute(
        self, prompt: llm.Prompt, stream: bool, response: llm.AsyncResponse, conversation: Any
    ) -> AsyncGenerator[str, None]:
        """Yield the answer's text: token by token, or as one where nobody streams."""
        turns, options = self._turns_and_options(prompt)
        model = aio.of(await in_thread(lambda: self._model(prompt)))
        async with aclosing(model.chat(turns, **options)) as tokens:
            if not stream:
                yield await tokens.text()
            async for token in tokens:
                yield token.text
        self._ended(tokens, response)


def _text(message: llm.Message) -> str:
    """Return the text of a turn. Raises `core.RequestError` for other content."""
    parts = []
    for part in message.parts:
        if not isinstance(part, TextPart):
            kind = type(part).__name__
            raise core.RequestError(f"Unsupported content {kind}: models only read text.")
        parts.append(part.text)
    return "".join(parts)
