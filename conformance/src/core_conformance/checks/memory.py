"""What a model says of its memory."""

from __future__ import annotations

from typing import cast

from core.capability import Capability
from core.extensions import MemoryReporting
from core.types import MemoryReport
from core_conformance import prompts
from core_conformance.answers import classify
from core_conformance.model import must
from core_conformance.registry import check
from core_conformance.subject import Subject


@check(
    "memory.report",
    "memory() MUST report whole bytes, and the peak since the last reset_peak_memory()",
    Capability.MEMORY_REPORTING,
    Capability.CLASSIFY,
)
def memory_is_reported(subject: Subject) -> None:
    model = cast("MemoryReporting", subject.model)
    classify(subject, [prompts.LONG])
    before = model.memory()
    must(isinstance(before, MemoryReport), f"memory() is {before!r}, not a MemoryReport")
    for name in ("active_bytes", "peak_bytes", "cache_bytes"):
        value = getattr(before, name)
        must(isinstance(value, int) and value >= 0, f"{name} is {value!r}, not a count of bytes")
    model.reset_peak_memory()
    after = model.memory()
    must(
        after.peak_bytes <= before.peak_bytes,
        f"reset_peak_memory() raised the peak from {before.peak_bytes} to {after.peak_bytes}",
    )
    classify(subject, [prompts.SHORT])
    worked = model.memory()
    must(
        worked.peak_bytes >= worked.active_bytes,
        f"after a call the peak is {worked.peak_bytes} bytes, and {worked.active_bytes} are held",
    )
