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


_OTHER_FILTERS = tuple(option.name for option in FILTERS if option.name != "top_k")
_STOPPED = ("cancel", "timeout")
_CLASSIFYING = (*_SAMPLING, *_STOPPED, "labels", "label_prefix", "return_logits")
for _operation, _method, _options in (
    (Capability.CHAT, "chat", (*_GENERATING, *_STOPPED)),
    (Capability.SUBMITTING, "submit", (*_GENERATING, *_STOPPED)),
    (Capability.BATCH_STREAMING, "batch_stream", (*_GENERATING, *_STOPPED)),
    (
        Capability.BATCH_GENERATE,
        "batch_generate",
        (*_OTHER_FILTERS, "repeat_penalty", "return_logprobs"),
    ),
    (Capability.CLASSIFY_STREAMING, "classify_iter", _CLASSIFYING),
):
    for _option in _options:
        saboteur(
            f"{_method}-drops-{_option}".replace("_", "-"), f"{_method} does not look at {_option}"
        )(_dropping(_operation, _option))
