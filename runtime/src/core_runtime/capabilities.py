"""The capabilities that come with the model classes of this package; cheap to import."""

from __future__ import annotations

from core.protocols import Capability

CLASSIFYING = frozenset(
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
"""The capabilities of a `core_runtime.classifying.ClassifyingModel`."""

READING = CLASSIFYING | {Capability.SCORING, Capability.TOKEN_PROMPTS, Capability.HIDDEN_STATES}
"""The capabilities of a `core_runtime.reading.ReadingModel`."""
