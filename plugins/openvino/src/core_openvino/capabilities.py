"""The capabilities that this plugin declares, for its backend and its models."""

from __future__ import annotations

from core.protocols import Capability
from core_runtime.capabilities import READING

MODEL_CAPABILITIES = READING

BACKEND_CAPABILITIES = MODEL_CAPABILITIES | {
    Capability.MODEL_PROBE,
    Capability.DEVICE_REPORTING,
}
