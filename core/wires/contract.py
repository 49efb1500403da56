"""core's own wire: the contract over HTTP, between ``infer-cli serve`` and the backend ``remote``.

``POST /v1/core/OPERATION`` calls the method of that name on a model. The body is a `Call`; values
are as `core.wires.plain` has them. The answer is lines of JSON, an event each, known by its keys:

- ``token``: of a stream; of ``batch_stream``, with its ``row`` beside it
- ``result``: one row of a call over rows; ``value``: what any other method returns
- ``end``: the last line, an `End`
- ``error``: the last line where the call failed, with ``end`` in the same one if it had begun

``describe`` has one `Description` as its value. ``cancel`` stops the call whose ``id`` its body
names: that call then ends as one whose ``cancel`` was set, with what it has. A client that leaves
stops its call as well, and hears nothing more of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from core.errors import InvalidOptionError
from core.options import GenerateConfig
from core.types import (
    BatchResult,
    Choice,
    ClassifyResult,
    FinishReason,
    GenerateMetrics,
    HiddenResult,
    ModelInfo,
    Score,
    TokenSequence,
)
from core.wires.plain import plain

VERSION = 1
"""Goes up when an older side would misread a newer one; new fields and operations do not count."""

PREFIX = "/v1/core/"
STREAMS = ("generate", "chat", "stream_tokens")
ROWS: Mapping[str, type] = {
    "classify": ClassifyResult,
    "batch_generate": BatchResult,
    "score": Score,
    "generate_tokens": TokenSequence,
    "score_tokens": Score,
    "hidden_states": HiddenResult,
}
"""Operations over rows, and what one row comes to."""
VALUES = (
    *("encode", "decode", "render_chat", "inspect_attention"),
    *("memory", "reset_peak_memory"),
)
OPERATIONS = ("describe", "cancel", *STREAMS, "batch_stream", *ROWS, *VALUES)

_OPTIONS = {each.name: each.default for each in dataclasses.fields(GenerateConfig)}
_NOT_SENT = {"cancel"}
_NO_METRICS = GenerateMetrics()


@dataclass(frozen=True, slots=True)
class Call:
    """The body of a request. ``model`` is one of the server by name; "" is its first.

    ``id`` is any text that nobody else guesses, by which the call can be cancelled. ``options`` are
    fields of `core.GenerateConfig`.
    """

    model: str = ""
    id: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """What a call cost, and why a stream ended."""

    metrics: GenerateMetrics = _NO_METRICS
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """What a served model is and offers.

    ``refused`` are sampling options that its backend does not honour, ``fingerprint`` is
    `core.models.fingerprint`'s, ``backend`` the name of its backend.
    """

    name: str
    wire: int
    model_type: str
    info: ModelInfo
    capabilities: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    fingerprint: str = ""
    backend: str = ""
    choices: tuple[Choice, ...] = ()


def options_of(config: GenerateConfig) -> dict[str, object]:
    """The options of a request that are not at their default, for a `Call`."""
    held = ((name, getattr(config, name), default) for name, default in _OPTIONS.items())
    return {
        name: plain(value)
        for name, value, default in held
        if name not in _NOT_SENT and value != default
    }


def config_of(options: Mapping[str, object]) -> GenerateConfig:
    """The config of such options. Raises `core.OptionError`, for an unknown one as well."""
    for name in options:
        if name not in _OPTIONS or name in _NOT_SENT:
            raise InvalidOptionError("options", name, f"one of {', '.join(_OPTIONS)}")
    return GenerateConfig(**options)  # type: ignore[arg-type]  # which checks each
