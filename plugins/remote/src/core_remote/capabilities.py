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
    Capability.MODEL_FINDING,
}
"""core's own wire: all but what belongs to a load, or to the server's machine and its files."""

OPENAI = _ALWAYS | {
    Capability.GENERATE,
    Capability.CHAT,
    Capability.BATCH_GENERATE,
    Capability.LOGPROBS,
    Capability.SEED,
    Capability.MODEL_PROBE,
}
"""The wire that most servers speak: texts, and no token ids."""

LLAMA_CPP = frozenset(
    {
        *(Capability.GENERATE, Capability.BATCH_GENERATE, Capability.SUBMITTING),
        *(Capability.CLASSIFY, Capability.CLASSIFY_STREAMING, Capability.LABELS),
        *(Capability.SCORING, Capability.LOGPROBS, Capability.TOKENIZING, Capability.TOKEN_PROMPTS),
        *(Capability.MODEL_PROBE, Capability.DECLARING, Capability.EXPLAINING),
    }
)
"""llama.cpp's own wire, which stands on a few fields: a server has all of these, or it is taken for
one of OpenAI's. Chats, seeds and slots are seen besides."""

BACKEND_CAPABILITIES = CONTRACT | OPENAI | LLAMA_CPP


def of_description(names: frozenset[str]) -> frozenset[Capability]:
    """What a model offers whose server names these; those that no wire carries are left out."""
    told = frozenset(each for each in CONTRACT if each.value in names)
    return told | _ALWAYS | {Capability.MODEL_PROBE}
