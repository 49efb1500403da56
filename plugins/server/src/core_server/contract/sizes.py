"""The size of a call, reckoned from its arguments before any of them is read."""

from __future__ import annotations

from collections.abc import Mapping

from core.options import GenerateConfig
from core.types import ModelInfo
from core.wires.contract import ROWS, Call
from core.wires.errors import OPENAI
from core_server.bounds import MAX_ROWS, bytes_of_rows, bytes_of_stops, check_labels, refuse_beyond


def bytes_of_call(operation: str, call: Call, config: GenerateConfig, info: ModelInfo) -> int:
    """Return what the results of a call take. Raises `WireError` for more than one may have."""
    given = call.arguments
    prompts = _length(given, "prompts")
    continuations = given.get("continuations")
    if isinstance(continuations, list) and len(continuations) != prompts:
        message = f"{len(continuations)} continuations for {prompts} prompts: give each its own."
        raise OPENAI.invalid(("arguments", "continuations"), message, "invalid_value")
    check_labels(config.labels)
    if operation not in (*ROWS, "batch_stream"):
        return bytes_of_stops(config.stop, 1)
    asked = given.get("num_samples")
    samples = asked if type(asked) is int and asked > 0 else 1
    rows = refuse_beyond(MAX_ROWS, "rows", {"prompts": prompts, "num_samples": samples})
    stops = bytes_of_stops(config.stop, rows)
    logits = info.vocab_size if operation == "classify" and config.return_logits else 0
    states = info.hidden_size * _length(given, "layers")
    probabilities = len(config.labels) if operation == "classify" else 0
    return stops + bytes_of_rows(rows, prompts * probabilities, prompts * (logits + states))


def _length(given: Mapping[str, object], name: str) -> int:
    value = given.get(name)
    return len(value) if isinstance(value, list) else 0
