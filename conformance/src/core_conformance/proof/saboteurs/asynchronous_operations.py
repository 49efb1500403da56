"""Saboteur of the operations of an event loop."""

from __future__ import annotations

from typing import Any

from core.aio.calls import ThreadCalls, ThreadStream
from core.options import GenerateConfig
from core_conformance.proof.registry import saboteur
from core_conformance.reference.optional import ReferenceModel


class LosesConfigs(ThreadCalls):
    def stream_async(self, operation: str, /, *arguments: Any, **options: Any) -> ThreadStream:
        """Pass the config on, but for a request that is submitted."""
        if operation == "submit":
            arguments = (arguments[0], GenerateConfig())
        return super().stream_async(operation, *arguments, **options)


@saboteur(
    "submit-in-a-loop-loses-its-config",
    "a request that is submitted in an event loop has the default options",
)
class SubmitInALoopLosesItsConfig(ReferenceModel):
    calls_class = LosesConfigs
