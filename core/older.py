"""Models of backends that were written for an older version of the contract.

Such a model does not know the options that were added later, and would silently ignore some of
them. So core wraps it: a later option raises `UnsupportedOptionError` before the model is called,
and a stream gets the methods that were added later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cache, partialmethod
from typing import Any, Self, cast

from core.errors import UnsupportedOptionError
from core.kit.streams import TokenStreamBase
from core.kit.support import NEWER
from core.options import (
    ChatOptions,
    ClassifyOptions,
    GenerateConfig,
    GenerateOptions,
    RequestOptions,
    TemplateOptions,
)
from core.protocols import PROTOCOL_VERSION, Backend, TextModel, TokenStream
from core.types import FinishReason, GenerateMetrics, Token

# By method: the options that version 1 did not have, and how many arguments it took where it had
# no config at all.
_TEMPLATE = frozenset(TemplateOptions.__annotations__)
_LATER: Mapping[str, frozenset[str]] = {
    **{
        name: NEWER.intersection(GenerateOptions.__annotations__)
        for name in ("generate", "submit", "batch_generate", "batch_stream")
    },
    "chat": NEWER.intersection(ChatOptions.__annotations__) | _TEMPLATE,
    "classify": NEWER.intersection(ClassifyOptions.__annotations__),
    "classify_iter": NEWER.intersection(ClassifyOptions.__annotations__),
    "render_chat": _TEMPLATE,
    "score": frozenset(RequestOptions.__annotations__),
    "inspect_attention": frozenset(RequestOptions.__annotations__),
}
_WITHOUT_CONFIG = {"render_chat": 1, "score": 2, "inspect_attention": 1}
_STREAMS = {"generate", "chat", "submit"}
_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in dataclasses.fields(GenerateConfig)
}


def adapted(model: TextModel, backend: Backend) -> TextModel:
    """Return the model itself, or a wrapper for a model of an older backend."""
    if backend.protocol >= PROTOCOL_VERSION:
        return model
    return cast("TextModel", _class_for(type(model))(model, backend.name))


class OlderModel:
    """A wrapper for a model of an older backend. Subclasses have one class's public methods."""

    def __init__(self, model: TextModel, backend: str) -> None:
        self._model, self._backend = model, backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._model!r}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._model.close()

    def _call(self, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the model without the options that were added after its version."""
        later = {option: _DEFAULTS[option] for option in _LATER.get(name, ())}
        configs = [argument for argument in arguments if isinstance(argument, GenerateConfig)]
        for option, default in later.items():
            value = getattr(configs[0], option) if configs else default
            if options.pop(option, value) != default:
                raise UnsupportedOptionError(option, self._backend)

        # A keyword may have reset a later option of the config to its default.
        arguments = tuple(
            dataclasses.replace(argument, **later)
            if isinstance(argument, GenerateConfig)
            else argument
            for argument in arguments
        )
        if name in _WITHOUT_CONFIG:
            arguments = arguments[: _WITHOUT_CONFIG[name]]
        result = getattr(self._model, name)(*arguments, **options)
        if name in _STREAMS and not hasattr(result, "to_dict"):
            return OlderStream(result)
        return result


class OlderStream(TokenStreamBase):
    """A stream of an older backend, with ``text()`` and ``to_dict()``."""

    def __init__(self, stream: TokenStream) -> None:
        super().__init__()
        self._stream = stream

    def next_token(self) -> Token:
        """Return the next token."""
        return next(self._stream)

    @property
    def finish_reason(self) -> FinishReason | None:
        """Reason why the stream ended; None until it has."""
        return self._stream.finish_reason

    @property
    def metrics(self) -> GenerateMetrics:
        """Cost of this stream; final once it has ended."""
        return self._stream.metrics

    def close(self) -> None:
        """Stop the request."""
        self._stream.close()


@cache
def _class_for(model_class: type) -> type[OlderModel]:
    """Return the wrapper class for a class: ``isinstance`` of a protocol checks classes."""
    names = {*_public_methods(model_class), "close"}
    methods = {name: partialmethod(OlderModel._call, name) for name in names}
    return type("OlderModel", (OlderModel,), cast("dict[str, Callable[..., Any]]", methods))


def _public_methods(model_class: type) -> set[str]:
    names = (name for name in dir(model_class) if not name.startswith("_"))
    return {name for name in names if callable(getattr(model_class, name))}
