"""``batch_generate`` over an API with one prompt per request: as many streams as rows."""

from __future__ import annotations

from collections.abc import Sequence

from core.errors import GenerationCancelled, RequestError
from core.kit.base import RequestClock
from core.types import BatchResult, GenerateMetrics, Token
from core_remote.stream import RemoteStream


def read_all(
    streams: Sequence[RemoteStream], costs: Sequence[GenerateMetrics], clock: RequestClock
) -> tuple[list[BatchResult], GenerateMetrics]:
    """Return the result of each stream, and their total cost; ``costs`` fills as they end.

    Raises an error that concerns all of them.
    """
    try:
        results = [_row(stream) for stream in streams]
    finally:
        for stream in streams:
            stream.close()
    return results, GenerateMetrics(
        prompt_tokens=sum(metrics.prompt_tokens for metrics in costs),
        cached_prompt_tokens=sum(metrics.cached_prompt_tokens for metrics in costs),
        generated_tokens=sum(len(result.tokens) for result in results),
        total_seconds=clock.seconds,
    )


def _row(stream: RemoteStream) -> BatchResult:
    tokens: list[Token] = []
    try:
        tokens.extend(stream)
    except RequestError as error:
        stopped = isinstance(error, GenerationCancelled)
        return BatchResult(tuple(tokens), "cancelled" if stopped else "error", error)
    return BatchResult(tuple(tokens), stream.finish_reason or "stop")
