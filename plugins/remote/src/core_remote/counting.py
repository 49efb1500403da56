"""What requests cost: one that was seen from here, and several together."""

from __future__ import annotations

from dataclasses import fields, replace

from core.clock import RequestClock
from core.types import GenerateMetrics

_OF_MEMORY = {"peak_memory_bytes", "active_memory_bytes"}
_ADDED = {each.name for each in fields(GenerateMetrics)} - _OF_MEMORY - {"total_seconds"}


def followed(one: GenerateMetrics, other: GenerateMetrics) -> GenerateMetrics:
    """Both, of which ``other`` came later; memory is what it was at last, or at most.

    The total is that of ``other``, which includes what was spent before.
    """
    return replace(
        other,
        peak_memory_bytes=max(one.peak_memory_bytes, other.peak_memory_bytes),
        **{name: getattr(one, name) + getattr(other, name) for name in _ADDED},
    )


def seen(
    clock: RequestClock, first: float, *, prompt: int, cached: int, generated: int
) -> GenerateMetrics:
    """The cost of a stream: tokens, and the seconds until the ``first`` one came, 0 if none did."""
    total = clock.seconds
    prefill = first or total
    return GenerateMetrics(
        prompt_tokens=prompt,
        cached_prompt_tokens=min(cached, prompt),
        generated_tokens=generated,
        prefill_seconds=prefill,
        decode_seconds=max(0.0, total - prefill),
        total_seconds=total,
    )
