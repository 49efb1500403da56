"""A call of a model: from the body of its request to the events of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from core.errors import UnsupportedOperationError
from core.options import GenerateConfig
from core.protocols import Capability, TokenStream
from core.types import FinishReason, GenerateMetrics, Message
from core_server.served import Served
from core_wires.contract import ROWS, STREAMS, Call, End
from core_wires.plain import plain, prompt_of, value_of

Event = dict[str, object]
_Arguments = Callable[[Mapping[str, object]], tuple[tuple[Any, ...], dict[str, Any]]]

_NEEDS = {
    "stream_tokens": Capability.TOKEN_PROMPTS,
    "generate_tokens": Capability.TOKEN_PROMPTS,
    "score_tokens": Capability.TOKEN_PROMPTS,
    "batch_stream": Capability.BATCH_STREAMING,
    "score": Capability.SCORING,
    "inspect_attention": Capability.ATTENTION_INSPECTOR,
    "encode": Capability.TOKENIZING,
    "decode": Capability.TOKENIZING,
    "render_chat": Capability.TOKENIZING,
    "memory": Capability.MEMORY_REPORTING,
    "reset_peak_memory": Capability.MEMORY_REPORTING,
}
_WITHOUT_CONFIG = {"encode", "decode", "memory", "reset_peak_memory"}


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
    need = _NEEDS.get(operation) or Capability(operation)
    if need not in served.capabilities:
        raise UnsupportedOperationError(operation, served.backend)
    positional, keywords = _arguments(operation, call.arguments)
    if operation not in _WITHOUT_CONFIG:
        positional = (*positional, config)
    method = getattr(served.model, operation)
    if operation in STREAMS:
        yield from _of_stream(method(*positional, **keywords))
    elif operation == "batch_stream":
        yield from _of_pairs(served, method(*positional, **keywords))
    elif operation in ROWS:
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
    return {"end": plain(End(metrics, reason))}


# --------------------------------------------------------------------------- arguments


def _arguments(
    operation: str, given: Mapping[str, object]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a method. Raises ValueError for missing or unknown ones."""
    readers, keywords = _TAKES[operation]
    known = {name for name, _ in readers} | keywords.keys()
    if strange := sorted(given.keys() - known):
        raise ValueError(f"arguments: {operation} does not accept {', '.join(strange)}")
    positional = []
    for name, read in readers:
        if name not in given:
            raise ValueError(f"arguments: {operation} requires {name}")
        positional.append(_read(name, read, given[name]))
    return tuple(positional), {
        name: _read(name, read, given[name]) for name, read in keywords.items() if name in given
    }


def _read(name: str, read: Callable[[object], Any], data: object) -> Any:
    try:
        return read(data)
    except ValueError as error:
        raise ValueError(f"arguments.{name}: {error}") from None


def _prompts(data: object) -> list[str]:
    return [prompt_of(prompt) for prompt in value_of(list[object], data)]


def _messages(data: object) -> list[Message]:
    return value_of(list[Message], data)


def _ids(data: object) -> list[int]:
    return value_of(list[int], data)


def _rows_of_ids(data: object) -> list[list[int]]:
    return value_of(list[list[int]], data)


def _whole(data: object) -> int:
    return value_of(int, data)


_Reader = Callable[[object], Any]
_PROMPT: tuple[tuple[str, _Reader], ...] = (("prompt", prompt_of),)
_PROMPTS: tuple[tuple[str, _Reader], ...] = (("prompts", _prompts),)
_TAKES: dict[str, tuple[tuple[tuple[str, _Reader], ...], dict[str, _Reader]]] = {
    "generate": (_PROMPT, {}),
    "chat": ((("messages", _messages),), {}),
    "stream_tokens": ((("prompt", _ids),), {}),
    "batch_stream": (_PROMPTS, {}),
    "classify": (_PROMPTS, {}),
    "batch_generate": (_PROMPTS, {}),
    "score": ((*_PROMPTS, ("continuations", _prompts)), {}),
    "generate_tokens": ((("prompts", _rows_of_ids),), {"num_samples": _whole}),
    "score_tokens": ((("prompts", _rows_of_ids), ("continuations", _rows_of_ids)), {}),
    "hidden_states": (_PROMPTS, {"layers": _ids}),
    "inspect_attention": (_PROMPT, {}),
    "encode": ((("text", prompt_of),), {}),
    "decode": ((("ids", _ids),), {}),
    "render_chat": ((("messages", _messages),), {}),
    "memory": ((), {}),
    "reset_peak_memory": ((), {}),
}


def with_stop(config: GenerateConfig, cancel: Any, most: float | None) -> GenerateConfig:
    """Return the config with the server's cancel, its timeout limited to the server's."""
    timeouts = [timeout for timeout in (config.timeout, most) if timeout is not None]
    limit = min(timeouts, default=None)
    return replace(config, cancel=cancel, timeout=limit)
