"""The capabilities that each API supports; a probe shows which of them a model offers."""

from __future__ import annotations

from core.protocols import Capability

_ALWAYS = frozenset({Capability.DECLARING, Capability.ASYNCHRONOUS, Capability.EXPLAINING})

CONTRACT = frozenset(Capability) - {
    Capability.ROTATE,
    Capability.ADAPTERS,
    Capability.ADAPTING,
    Capability.TRAINABLE,
    Capability.DEVICE_REPORTING,
    Capability.MODEL_FINDING,
}
"""core's API: all but capabilities of a load, or of the server's machine and its files."""

OPENAI = _ALWAYS | {
    Capability.GENERATE,
    Capability.CHAT,
    Capability.BATCH_GENERATE,
    Capability.LOGPROBS,
    Capability.SEED,
    Capability.MODEL_PROBE,
}
"""The API that most servers have: texts, without token ids."""

LLAMA_CPP = frozenset(
    {
        *(Capability.GENERATE, Capability.BATCH_GENERATE, Capability.SUBMITTING),
        *(Capability.CLASSIFY, Capability.CLASSIFY_STREAMING, Capability.LABELS),
        *(Capability.SCORING, Capability.LOGPROBS, Capability.TOKENIZING, Capability.TOKEN_PROMPTS),
        *(Capability.MODEL_PROBE, Capability.DECLARING, Capability.EXPLAINING),
    }
)
"""llama.cpp's API, recognised by a few fields: a server without all of them is treated as one with
OpenAI's API. Chats, seeds and slots are probed in addition."""

BACKEND_CAPABILITIES = CONTRACT | OPENAI | LLAMA_CPP


def of_description(names: frozenset[str]) -> frozenset[Capability]:
    """Return the capabilities of a model from the names in its description.

    Capabilities that no API supports are left out.
    """
    declared = frozenset(capability for capability in CONTRACT if capability.value in names)
    return declared | _ALWAYS | {Capability.MODEL_PROBE}
