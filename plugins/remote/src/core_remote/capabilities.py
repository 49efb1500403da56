"""The capabilities that each wire can carry; what a model offers of them, a probe shows."""

from __future__ import annotations

from core.protocols import Capability

_ALWAYS = frozenset({Capability.DECLARING, Capability.ASYNCHRONOUS, Capability.EXPLAINING})

CONTRACT = frozenset(Capability) - {
    Capability.ROTATE,
    Capability.ADAPTERS,
    Capability.ADAPTING,
    Capability.TRAINABLE,
    Capability.DEVICE_REPORTING,
}
"""core's own wire: all but what belongs to a load, or to the machine that the server runs on."""

OPENAI = _ALWAYS | {
    Capability.GENERATE,
    Capability.CHAT,
    Capability.BATCH_GENERATE,
    Capability.LOGPROBS,
    Capability.SEED,
    Capability.MODEL_PROBE,
}
"""The wire that most servers speak: texts, and no token ids."""

BACKEND_CAPABILITIES = CONTRACT | OPENAI


def of_description(names: frozenset[str]) -> frozenset[Capability]:
    """What a model offers whose server names these; those that no wire carries are left out."""
    told = frozenset(each for each in CONTRACT if each.value in names)
    return told | _ALWAYS | {Capability.MODEL_PROBE}
