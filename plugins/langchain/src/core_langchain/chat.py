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
from core.aio.threads import in_thread
from core.options import ChatOptions
from core.secret import hidden
from core.shared_models import shared_model
from core_langchain.messages import chunk, end, turns

_OPTIONS = ChatOptions.__annotations__


LoadOptions: TypeAlias = Annotated[Mapping[str, Any] | None, AfterValidator(hidden)]
"""Keywords of `core.load_model`, secrets masked: chains are traced, and caches name them."""


class TooLong(core.PromptTooLongError, ContextOverflowError):
    """A conversation longer than the context: core's error, which is LangChain's as well."""


class ChatCore(BaseChatModel):
    """Chats with a model of this machine: ``model`` is a name or path for `core.load_model`.

    It is loaded on first use, on ``backend`` with ``load_options``, and shared in the process;
    ``loaded`` is one that was loaded already, and ``model`` then its name alone. The other fields
    are options of core's ``chat``, as every call takes them too, beside ``cancel``; None is core's
    own default. A field or an option that core does not know is refused, and so are tools, images
    and sound: models here read text alone.
    """

    model_config = ConfigDict(extra="forbid")

    model: str
    loaded: Any = Field(default=None, exclude=True, repr=False)
    backend: str = ""
    load_options: LoadOptions = None
    streaming: bool | None = None
    """True has ``invoke`` tell callbacks each token; False has ``stream`` give the whole answer."""

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
        tokens = self._asked(model).chat(turns(messages), **self._options(stop, options))
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
        asked = aio.of(await in_thread(lambda: self._asked(model)))
        tokens = asked.chat(turns(messages), **self._options(stop, options))
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

    def _asked(self, model: str | None = None) -> core.TextModel:
        """The model of a call: another one by name, or this object's own."""
        own = self.loaded is not None and model in (None, self.model)
        return shared_model(
            self.loaded if own else model or self.model, self.backend, self.load_options
        )

    def _options(self, stop: list[str] | None, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that say something, below what the call says."""
        fields = ((name, getattr(self, name, None)) for name in _OPTIONS)
        own = {name: value for name, value in fields if value is not None}
        return {**own, **given} if stop is None else {**own, **given, "stop": stop}

    def get_token_ids(self, text: str) -> list[int]:
        """The model's own tokens. Raises `core.UnsupportedOperationError` where it shows none."""
        model = self._asked()
        if not isinstance(model, core.Tokenizing):
            raise core.UnsupportedOperationError("encode", self.backend or self.model, ())
        return model.encode(text)

    @property
    def _llm_type(self) -> str:
        return "core"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        """What an answer depends on: LangChain's caches go by it."""
        load = {"backend": self.backend, "load_options": self.load_options}
        return {"model": self.model, **load, **self._options(None, {})}
