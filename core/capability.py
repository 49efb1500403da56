"""What a backend can say that it does."""

from __future__ import annotations

from enum import StrEnum


class Capability(StrEnum):
    """One name per thing that a backend may or may not offer.

    An undeclared capability is refused with a typed error, never half-answered.
    """

    GENERATE = "generate"
    CHAT = "chat"
    CLASSIFY = "classify"
    BATCH_GENERATE = "batch_generate"
    # options
    LABELS = "labels"
    LOGITS = "logits"
    LOGPROBS = "logprobs"
    SEED = "seed"
    PARALLEL = "parallel"
    ROTATE = "rotate"
    ADAPTERS = "adapters"
    # optional protocols, one each (core/extensions.py)
    TOKENIZING = "tokenizing"
    SUBMITTING = "submitting"
    BATCH_STREAMING = "batch_streaming"
    CLASSIFY_STREAMING = "classify_streaming"
    SCORING = "scoring"
    ATTENTION_INSPECTOR = "attention_inspector"
    MODEL_PROBE = "model_probe"
    MEMORY_REPORTING = "memory_reporting"
    TRAINABLE = "trainable"
    DEVICE_REPORTING = "device_reporting"
    EXPLAINING = "explaining"
