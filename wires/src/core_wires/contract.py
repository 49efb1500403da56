"""core's own API: the contract over HTTP, between ``infer-cli serve`` and the backend ``remote``.

``POST /v1/core/OPERATION`` calls the method of that name on a model. The body is a `Call`; values
are as `core_wires.plain` has them. The answer is lines of JSON, an event each, known by its keys:

- ``token``: of a stream; of ``batch_stream``, together with its ``row``
- ``result``: one row of a call over rows; ``value``: the result of any other method
- ``end``: the last line, an `End`
- ``error``: the last line if the call failed, together with ``end`` if it had begun

``describe`` has one `Description` as its value. ``cancel`` stops the call whose ``id`` its body
names: that call then ends as if its ``cancel`` was set, with its results so far. A client that
disconnects stops its call as well.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

from core.errors import InvalidOptionError
from core.kit import operations
from core.kit.support import PROTOCOLS
from core.options import GenerateConfig
from core.protocols import Capability, TextModel
from core.types import Choice, FinishReason, GenerateMetrics, ModelInfo
from core_wires.plain import plain

VERSION = 1
"""Version: incremented if an older side would misread a newer one, not for new fields."""

PREFIX = "/v1/core/"
Answer = Literal["tokens", "pairs", "rows", "value"]


@dataclass(frozen=True, slots=True)
class Method:
    """A served method of a model, by its signature.

    ``arguments`` are the positional ones before the config, ``keywords`` those beside the options,
    each with its annotation. ``answer`` says which events it has.
    """

    capability: Capability
    arguments: Mapping[str, str]
    keywords: Mapping[str, str]
    takes_config: bool
    answer: Answer


def _method(name: str, capability: Capability) -> Method:
    signature = inspect.signature(getattr(PROTOCOLS.get(capability, TextModel), name))
    _, *parameters = signature.parameters.values()  # without self
    keywords = {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}
    arguments = {p.name: p.annotation for p in parameters if p.kind < p.VAR_POSITIONAL}
    takes_config = arguments.pop("config", None) is not None

    result, answer = str(signature.return_annotation), "value"
    if result == "TokenStream":
        answer = "tokens"
    elif result.startswith("Iterator["):
        answer = "pairs"
    elif takes_config and result.startswith("list["):
        answer = "rows"
    return Method(capability, arguments, keywords, takes_config, cast("Answer", answer))


_CAPABILITIES = {
    **{name: capability for name, (capability, _) in operations.OPERATIONS.items()},
    **dict.fromkeys(("encode", "decode"), Capability.TOKENIZING),
    **dict.fromkeys(("memory", "reset_peak_memory"), Capability.MEMORY_REPORTING),
}
_MADE_BY_CLIENTS = ("submit", "classify_iter")  # of `generate` and of `classify`
METHODS: Mapping[str, Method] = {
    name: _method(name, capability)
    for name, capability in _CAPABILITIES.items()
    if name not in _MADE_BY_CLIENTS
}
"""The methods that are served, by name."""
OPERATIONS = ("describe", "cancel", *METHODS)

_OPTIONS = {option.name: option.default for option in dataclasses.fields(GenerateConfig)}
_NOT_SENT = {"cancel"}
_NO_METRICS = GenerateMetrics()


@dataclass(frozen=True, slots=True)
class Call:
    """The body of a request. ``model`` is the name of a served model; "" is the first one.

    ``id`` is an unguessable text, by which the call can be cancelled. ``options`` are fields of
    `core.GenerateConfig`.
    """

    model: str = ""
    id: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class End:
    """Cost of a call, and the reason why a stream ended."""

    metrics: GenerateMetrics = _NO_METRICS
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """Description of a served model.

    ``refused`` are sampling options that its backend does not support, ``fingerprint`` is
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
    """Return the options of a request that are not at their default, for a `Call`."""
    return {
        name: plain(getattr(config, name))
        for name, default in _OPTIONS.items()
        if name not in _NOT_SENT and getattr(config, name) != default
    }


def config_of(options: Mapping[str, object]) -> GenerateConfig:
    """Return the config of such options. Raises `core.OptionError`, for an unknown one as well."""
    for name in options:
        if name not in _OPTIONS or name in _NOT_SENT:
            raise InvalidOptionError("options", name, f"one of {', '.join(_OPTIONS)}")
    return GenerateConfig(**options)  # type: ignore[arg-type]  # which checks them
