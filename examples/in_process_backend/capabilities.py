"""The backend's declarations: the capabilities of `core_runtime`, and its supported options."""

from __future__ import annotations

from core.protocols import Capability

CAPABILITIES = frozenset(
    {
        Capability.GENERATE,
        Capability.CHAT,
        Capability.CHAT_TEMPLATE,
        Capability.CLASSIFY,
        Capability.CLASSIFY_STREAMING,
        Capability.BATCH_GENERATE,
        Capability.BATCH_STREAMING,
        Capability.SUBMITTING,
        Capability.TOKENIZING,
        Capability.EXPLAINING,
        Capability.LABELS,
        Capability.LOGITS,
        Capability.LOGPROBS,
        Capability.SEED,
        Capability.PARALLEL,
    }
)
