"""The capabilities that this plugin declares, for its backend and its models."""

from __future__ import annotations

from core.protocols import Capability

MODEL_CAPABILITIES = frozenset(
    {
        Capability.GENERATE,
        Capability.CHAT,
        Capability.CHAT_TEMPLATE,
        Capability.LOGPROBS,
        Capability.SEED,
        Capability.ADAPTERS,
        Capability.EXPLAINING,
    }
)

BACKEND_CAPABILITIES = MODEL_CAPABILITIES | {Capability.MODEL_PROBE}
