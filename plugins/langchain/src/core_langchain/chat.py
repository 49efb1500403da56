"""`ChatCore`: a local model as LangChain's chat model, token by token, sync and async."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Annotated, Any, TypeAlias

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from pydantic import AfterValidator, ConfigDict, Field

import core
from core import aio
from core.aio.calls import in_thread
from core.api import shared_model
from core.options import ChatOptions
from core.secret import hidden
from core_langchain.messages import chunk, end, turns

_OPTIONS = ChatOptions.__annotations__


LoadOptions: TypeAlias = Annotated[Mapping[str, Any] | None, AfterValidator(hidden)]
"""Keywords of `core.load_model`, with secrets masked: traces and cache keys contain them."""


class TooLong(core.PromptTooLongError, ContextOverflowError):
    """The error of a conversation longer than the context, both core's and LangChain's."""


class ChatCore(BaseChatModel):
    """A chat model on this machine: ``model`` is a name or path for `core.load_model`.

    It is loaded on first use, on ``backend`` with ``load_options``, and shared in the process;
    ``loaded`` is a loaded model, and ``model`` then only its name. The other fields are options of
    core's ``chat``, which every call accepts as well, and ``cancel``; None means core's default.
    Unknown fields and options are refused, and so are tools, images and sound: models only read
    text.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    loaded: Any = Field(default=None, exclude=True, repr=False)
    backend: str = ""
    load_options: LoadOptions = None
    streaming: bool | None = None
    """True: ``invoke`` reports each token to callbacks; False: ``stream`` yields one chunk."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    typical_p: float | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    seed: int | None = None
    stop: list[str] | None = None
    stop_tokens: list[int] | None = None
    return_logprobs: bool | None = None
    timeout: float | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    continue_final_message: bool | None = None

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        model: str | None = None,
        stream: bool = True,
        **options: Any,
    ) -> Iterator[ChatGenerationChunk]:
        tokens = self._model_for(model).chat(turns(messages), **self._options(stop, options))
        try:
            for token in tokens:
                yield chunk(token)
        except core.PromptTooLongError as error:
            raise TooLong(error.length, error.limit, own=error.own) from error
        finally:
            tokens.close()
        yield end(tokens, model or self.model)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        model: str | None = None,
        stream: bool = True,
        **options: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        awaitable = aio.of(await in_thread(lambda: self._model_for(model)))
        tokens = awaitable.chat(turns(messages), **self._options(stop, options))
        async with aclosing(tokens):
            try:
                async for token in tokens:
                    yield chunk(token)
            except core.PromptTooLongError as error:
                raise TooLong(error.length, error.limit, own=error.own) from error
        yield end(tokens, model or self.model)

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        return generate_from_stream(self._stream(messages, *args, **options))

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, *args, **options))

    def _model_for(self, model: str | None = None) -> core.TextModel:
        """Return the model of a call: another one by name, or this object's."""
        own = self.loaded is not None and model in (None, self.model)
        return shared_model(
            self.loaded if own else model or self.model, self.backend, self.load_options
        )

    def _options(self, stop: list[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a call: the fields that are set, overridden by the call's."""
        fields = ((name, getattr(self, name, None)) for name in _OPTIONS)
        own = {name: value for name, value in fields if value is not None}
        return {**own, **given} if stop is None else {**own, **given, "stop": stop}

    def get_token_ids(self, text: str) -> list[int]:
        """Return the model's token ids.

        Raises `core.UnsupportedOperationError` if it has no tokenizer.
        """
        model = self._model_for()
        if not isinstance(model, core.Tokenizing):
            raise core.UnsupportedOperationError("encode", self.backend or self.model, ())
        return model.encode(text)

    @property
    def _llm_type(self) -> str:
        return "core"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """The parameters that determine an answer: the key of LangChain's caches."""
        load = {"backend": self.backend, "load_options": self.load_options}
        return {"model": self.model, **load, **self._options(None, {})}
