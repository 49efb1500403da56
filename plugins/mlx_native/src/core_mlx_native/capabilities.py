"""The capabilities of this plugin, in one place for its backends and its models."""

from __future__ import annotations

from core.protocols import Capability
from core_runtime.capabilities import READING

MODEL_CAPABILITIES = READING | {
    Capability.ROTATE,
    Capability.ADAPTERS,
    Capability.ADAPTING,
    Capability.ATTENTION_INSPECTOR,
    Capability.MEMORY_REPORTING,
    Capability.TRAINABLE,
}

BACKEND_CAPABILITIES = MODEL_CAPABILITIES | {
    Capability.MODEL_PROBE,
    Capability.DEVICE_REPORTING,
}
