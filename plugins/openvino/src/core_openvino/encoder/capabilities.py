"""The capabilities of the backend ``encoder`` and of its models; cheap to import."""

from __future__ import annotations

from core.protocols import Capability

PAIRS = frozenset(
    {
        Capability.LABELS,
        Capability.LABEL_SENTENCES,
        Capability.CLASSIFY_STREAMING,
        Capability.TOKENIZING,
        Capability.EXPLAINING,
        Capability.DECLARING,
        Capability.MODEL_PROBE,
        Capability.DEVICE_REPORTING,
    }
)
"""The capabilities of a cross-encoder, which reads a text and a label's sentence together."""

EMBEDDING = PAIRS | {Capability.HIDDEN_STATES}
"""The capabilities of a model with an embedding for each text."""
