"""A call of a model: its arguments, its size, and the events of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from core.errors import UnsupportedOperationError
from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import FinishReason, GenerateMetrics, Message, ModelInfo
from core_server.access_log import note
from core_server.bounds import (
    ID_BYTES,
    MAX_ROWS,
    MAX_TOKENS,
    bytes_of_rows,
    bytes_of_stops,
    bytes_of_text,
    check_labels,
    check_variables,
    refuse_beyond,
)
from core_server.served import Served
from core_wires.contract import METHODS, Call, End
from core_wires.errors import OPENAI
from core_wires.plain import plain, prompt_of, value_of
from core_wires.usage import Usage

Event = dict[str, object]


def events(
    served: Served,
    operation: str,
    call: Call,
    config: GenerateConfig,
    done: Callable[[], None] = lambda: None,
) -> Iterator[Event]:
    """Yield the events of an answer as they are made; errors are raised.

    ``done`` is called before the first of many rows, when the model is not needed any more.
    Raises ValueError for missing, unknown or invalid arguments.
    """
    declared = METHODS[operation]
    with_labels = operation == "classify" and bool(config.labels)
    needed = Capability.LABEL_SENTENCES if with_labels else declared.capability
    if served.capabilities.isdisjoint({declared.capability, needed}):
        raise UnsupportedOperationError(operation, served.backend)
    positional, keywords = _arguments(operation, call.arguments)
    if declared.takes_config:
        positional = (*positional, config)
    method = getattr(served.model, operation)
    if declared.answer == "tokens":
        yield from _of_stream(method(*positional, **keywords))
    elif declared.answer == "pairs":
        yield from _of_pairs(served, method(*positional, **keywords))
    elif declared.answer == "rows":
        results, end = method(*positional, **keywords), _end(served.model.metrics)
        done()
        for result in results:
            yield {"result": plain(result)}
        yield end
    else:
        yield {"value": plain(method(*positional, **keywords))}
        yield _end(served.model.metrics)


def _of_stream(stream: TokenStream) -> Iterator[Event]:
    try:
        for token in stream:
            yield {"token": plain(token)}
        yield _end(stream.metrics, stream.finish_reason)
    except Exception as error:  # noqa: BLE001 - reported with the metrics until then
        yield _end(stream.metrics, stream.finish_reason) | {"error": plain(error)}
    finally:
        stream.close()


def _of_pairs(served: Served, pairs: Any) -> Iterator[Event]:
    try:
        for row, token in pairs:
            yield {"row": row, "token": plain(token)}
    except Exception as error:  # noqa: BLE001 - of the first row that failed: reported last
        yield _end(served.model.metrics) | {"error": plain(error)}
        return
    finally:
        pairs.close()
    yield _end(served.model.metrics)


def _end(metrics: GenerateMetrics, reason: FinishReason | None = None) -> Event:
    note(usage=Usage.of(metrics))
    return {"end": plain(End(metrics, reason))}


# --------------------------------------------------------------------------- arguments


def _arguments(
    operation: str, given: Mapping[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a method. Raises ValueError for missing or unknown ones."""
    readers, keywords = _ARGUMENTS[operation], _KEYWORDS[operation]
    if strange := sorted(given.keys() - readers.keys() - keywords.keys()):
        raise ValueError(f"arguments: {operation} does not accept {', '.join(strange)}")
    if missing := [name for name in readers if name not in given]:
        raise ValueError(f"arguments: {operation} requires {missing[0]}")
    return tuple(_read(name, read, given[name]) for name, read in readers.items()), {
        name: _read(name, read, given[name]) for name, read in keywords.items() if name in given
    }


def _read(name: str, read: Callable[[object], Any], data: object) -> Any:
    try:
        return read(data)
    except ValueError as error:
        raise ValueError(f"arguments.{name}: {error}") from None


def _prompts(data: object) -> list[str]:
    return [prompt_of(prompt) for prompt in value_of(list[object], data)]


_READERS: dict[str, Callable[[object], Any]] = {
    "str": prompt_of,
    "Sequence[str]": _prompts,
    "Conversation": partial(value_of, list[Message]),
    "Sequence[int]": partial(value_of, list[int]),
    "TokenIds": partial(value_of, list[list[int]]),
    "int": partial(value_of, int),
}
"""The reader of an argument, by its annotation."""

_ARGUMENTS = {
    operation: {name: _READERS[kind] for name, kind in method.arguments.items()}
    for operation, method in METHODS.items()
}
# Not ``attention_mask``: clients send ids without padding.
_KEYWORDS = {
    operation: {name: _READERS[kind] for name, kind in method.keywords.items() if kind in _READERS}
    for operation, method in METHODS.items()
}


def with_stop(config: GenerateConfig, cancel: Any, most: float | None) -> GenerateConfig:
    """Return the config with the server's cancel, its timeout limited to the server's."""
    timeouts = [timeout for timeout in (config.timeout, most) if timeout is not None]
    limit = min(timeouts, default=None)
    return replace(config, cancel=cancel, timeout=limit)


# --------------------------------------------------------------------------- sizes


def bytes_of_call(operation: str, call: Call, config: GenerateConfig, info: ModelInfo) -> int:
    """Return the bytes that a call's results take. Raises `WireError` beyond the limits."""
    arguments = call.arguments
    prompts = _length(arguments, "prompts")
    continuations = arguments.get("continuations")
    if isinstance(continuations, list) and len(continuations) != prompts:
        message = f"{len(continuations)} continuations for {prompts} prompts: give as many."
        raise OPENAI.invalid(("arguments", "continuations"), message, "invalid_value")
    check_labels(config.labels, config.label_sentence)
    check_variables(config.chat_template_kwargs)
    if METHODS[operation].answer not in ("rows", "pairs"):
        return bytes_of_stops(config.stop, 1) + _bytes_of_tokens(operation, arguments)
    count = arguments.get("num_samples")
    samples = count if type(count) is int and count > 0 else 1
    rows = refuse_beyond(MAX_ROWS, "rows", {"prompts": prompts, "num_samples": samples})
    stops = bytes_of_stops(config.stop, rows)
    logits = info.vocab_size if operation == "classify" and config.return_logits else 0
    states = info.hidden_size * _length(arguments, "layers")
    probabilities = len(config.labels) if operation == "classify" else 0
    return stops + bytes_of_rows(rows, prompts * probabilities, prompts * (logits + states))


def _bytes_of_tokens(operation: str, arguments: Mapping[str, object]) -> int:
    """Return the bytes that the tokenizer takes for a call without a generation."""
    if operation == "decode":
        tokens = {"tokens": _length(arguments, "ids")}
        return ID_BYTES * refuse_beyond(MAX_TOKENS, "tokens", tokens)
    texts: list[object] = []
    if operation == "encode":
        texts = [arguments.get("text")]
    elif operation == "render_chat" and isinstance(messages := arguments.get("messages"), list):
        texts = [message.get("content") for message in messages if isinstance(message, dict)]
    return sum(bytes_of_text(text) for text in texts if isinstance(text, str))


def _length(arguments: Mapping[str, object], name: str) -> int:
    value = arguments.get(name)
    return len(value) if isinstance(value, list) else 0
