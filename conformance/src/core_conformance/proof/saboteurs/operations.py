"""Saboteurs that leave an option out in one operation, and honour it in all others."""

from __future__ import annotations

import dataclasses
from typing import Any

from core.kit.operations import OPERATIONS
from core.options import GenerateConfig
from core.protocols import Capability
from core.sampling_options import FILTERS, SAMPLING_OPTIONS
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel

_OFF: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(GenerateConfig)}
_SAMPLING = (*(option.name for option in SAMPLING_OPTIONS), "return_logprobs")
_GENERATING = (*_SAMPLING, "stop", "stop_tokens")
_STOPPED = {
    "cancel": {"cancel.every-operation"},
    "timeout": {"cancel.timeout-every-operation"},
}

# Where the looks at a cancel tell when work begins.
_ASKS = {
    ("submit", "cancel"): {"submitting.begins"},
    ("batch_stream", "cancel"): {"batch.stream-lazy"},
}


def _dropping(capability: Capability, option: str) -> type[ReferenceModel]:
    """Return a model that does not look at this option in this operation."""

    class Drops(ReferenceModel):
        def resolve_request(
            self, operation: str, config: GenerateConfig | None, options: Any
        ) -> GenerateConfig:
            request = super().resolve_request(operation, config, options)
            if OPERATIONS[operation][0] is not capability:
                return request
            return dataclasses.replace(request, **{option: _OFF[option]})

    return Drops


def _register(operation: Capability, method: str, option: str, kills: set[str]) -> None:
    name = f"{method}-drops-{option}".replace("_", "-")
    saboteur(name, f"{method} does not look at {option}", kills)(_dropping(operation, option))


for _operation, _method, _check in (
    (Capability.CHAT, "chat", "chat.options"),
    (Capability.SUBMITTING, "submit", "submitting.options"),
    (Capability.BATCH_STREAMING, "batch_stream", "batch.stream-options"),
):
    for _option in _GENERATING:
        _register(_operation, _method, _option, {_check})
    for _option, _kills in _STOPPED.items():
        _register(_operation, _method, _option, _kills | _ASKS.get((_method, _option), set()))

_OTHER_FILTERS = tuple(option.name for option in FILTERS if option.name != "top_k")
for _option in (*_OTHER_FILTERS, "repeat_penalty", "return_logprobs"):
    _register(Capability.BATCH_GENERATE, "batch_generate", _option, {"batch.options"})

for _option in _SAMPLING:
    _register(Capability.CLASSIFY_STREAMING, "classify_iter", _option, {"classify.stream-options"})
for _option, _kills in {
    **_STOPPED,
    "labels": {"classify.stream-labels", "classify.equal-prompts"},
    "label_prefix": {"classify.stream-labels"},
    "return_logits": {"classify.stream-logits", "classify.equal-prompts"},
}.items():
    _register(Capability.CLASSIFY_STREAMING, "classify_iter", _option, _kills)
