"""The capabilities that this plugin declares, for its backends and its models."""

from __future__ import annotations

from core.protocols import Capability

MODEL_CAPABILITIES = frozenset(
    {
        Capability.GENERATE,
        Capability.CHAT,
        Capability.CLASSIFY,
        Capability.CLASSIFY_STREAMING,
        Capability.BATCH_GENERATE,
        Capability.LABELS,
        Capability.LOGITS,
        Capability.LOGPROBS,
        Capability.SEED,
        Capability.PARALLEL,
        Capability.ROTATE,
        Capability.ADAPTERS,
        Capability.CHAT_TEMPLATE,
        Capability.TOKENIZING,
        Capability.SUBMITTING,
        Capability.BATCH_STREAMING,
        Capability.SCORING,
        Capability.TOKEN_PROMPTS,
        Capability.HIDDEN_STATES,
        Capability.EXPLAINING,
    }
)

BACKEND_CAPABILITIES = MODEL_CAPABILITIES | {
    Capability.MODEL_PROBE,
    Capability.DEVICE_REPORTING,
}
