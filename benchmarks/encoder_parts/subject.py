"""The interface of a contestant in the process that runs it: texts in, label scores or vectors out.

This module, the worker and the runners of peers import nothing of this project but each other: the
interpreter of a peer has that peer's library, and may lack every other.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Rows = list[list[float]]


@dataclass(frozen=True, slots=True)
class Spec:
    """A contestant: its name in the report, its runner and interpreter, the model and options.

    ``question`` is its form of the task: a label sentence, a prompt template, or a question.
    """

    name: str
    runner: str
    model: str
    python: str
    question: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Subject(Protocol):
    """A loaded contestant."""

    def about(self) -> str:
        """Return version and settings, in words."""
        ...

    def label(self, texts: Sequence[str], labels: Sequence[str], question: str) -> Rows:
        """Return log-probabilities of the labels for each text; this is timed."""
        ...

    def embed(self, texts: Sequence[str]) -> Rows:
        """Return a vector of length one for each text; none if it has none."""
        ...


RUNNERS = {
    "core": ("benchmarks.encoder_parts.run_core", "Core"),
    "onnx": ("benchmarks.encoder_parts.run_onnx", "Onnx"),
    "sparrow": ("benchmarks.encoder_parts.run_sparrow", "Sparrow"),
}


def load(spec: Spec) -> Subject:
    """Load a contestant in this process. Raises the errors of its load."""
    module, name = RUNNERS[spec.runner]
    subject: Subject = getattr(importlib.import_module(module), name)(spec)
    return subject
