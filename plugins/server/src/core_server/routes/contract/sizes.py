"""Size of a call, computed from its arguments before any of them is read."""

from __future__ import annotations

from collections.abc import Mapping

from core.options import GenerateConfig
from core.types import ModelInfo
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
from core_wires.contract import ROWS, Call
from core_wires.errors import OPENAI


def bytes_of_call(operation: str, call: Call, config: GenerateConfig, info: ModelInfo) -> int:
    """Return the bytes that a call's results take. Raises `WireError` beyond the limits."""
    arguments = call.arguments
    prompts = _length(arguments, "prompts")
    continuations = arguments.get("continuations")
    if isinstance(continuations, list) and len(continuations) != prompts:
        message = f"{len(continuations)} continuations for {prompts} prompts: give as many."
        raise OPENAI.invalid(("arguments", "continuations"), message, "invalid_value")
    check_labels(config.labels)
    check_variables(config.chat_template_kwargs)
    if operation not in (*ROWS, "batch_stream"):
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
