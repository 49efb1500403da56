"""Metrics of requests: of one as measured here, and of several together."""

from __future__ import annotations

from dataclasses import fields, replace

from core.kit.base import RequestClock
from core.types import GenerateMetrics

_OF_MEMORY = {"peak_memory_bytes", "active_memory_bytes"}
_ADDED = {field.name for field in fields(GenerateMetrics)} - _OF_MEMORY - {"total_seconds"}


def followed(one: GenerateMetrics, other: GenerateMetrics) -> GenerateMetrics:
    """Return the sum of both; memory is the last value, or the peak. ``other`` came later.

    The total time is that of ``other``, which includes the time before.
    """
    return replace(
        other,
        peak_memory_bytes=max(one.peak_memory_bytes, other.peak_memory_bytes),
        **{name: getattr(one, name) + getattr(other, name) for name in _ADDED},
    )


def seen(
    clock: RequestClock, first: float, *, prompt: int, cached: int, generated: int
) -> GenerateMetrics:
    """Return the metrics of a stream as measured here.

    ``first``: seconds until the first token, 0 if none came.
    """
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
