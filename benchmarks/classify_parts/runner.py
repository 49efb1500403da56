"""The interface of a contestant in the process that runs it: prompts in, one label each out.

This module and its neighbours import the standard library only, until a runner is made: the
interpreter of a peer has that peer's library, and may lack every other.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.classify_parts.workloads import LABELS
from benchmarks.line_process import UnavailableError

Ids = list[int]
Encode = Callable[[str], Ids]
WARM_UP = 32  # prompts


@dataclass(frozen=True, slots=True)
class Spec:
    """A contestant: its name in the report, what runs it, and in which interpreter.

    ``options`` are those of its runner; ``environment`` is added to the process's.
    """

    name: str
    library: str
    model: str
    python: str
    options: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """One pass over a workload. ``computed_tokens`` leaves out those of a reused prefix.

    ``device_bytes`` is the peak of a GPU's memory where that is what is filled;
    ``margins`` are best minus second probability over the labels; ``flops_per_second`` is what
    only `run_matmul` sets.
    """

    labels: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    computed_tokens: int = 0
    margins: list[float] | None = None
    device_bytes: int | None = None
    flops_per_second: float | None = None


def together(answers: Sequence[Answer]) -> Answer:
    """The answer of several calls as if it were one's."""
    if len(answers) == 1:
        return answers[0]
    margins = [answer.margins for answer in answers]
    device = [answer.device_bytes for answer in answers]
    return Answer(
        [label for answer in answers for label in answer.labels],
        sum(answer.prompt_tokens for answer in answers),
        sum(answer.computed_tokens for answer in answers),
        None if None in margins else [margin for some in margins for margin in some or ()],
        None if None in device else max(size or 0 for size in device),
        answers[0].flops_per_second,
    )


class Runner(Protocol):
    """A loaded contestant."""

    def about(self) -> str:
        """Version and settings, in words."""
        ...

    def warm_up(self, prompts: Sequence[str]) -> None:
        """Do, on this workload, the one-time work of a first call."""
        ...

    def run(self, prompts: Sequence[str]) -> Answer:
        """Classify; this is what is timed, tokenising included."""
        ...


RUNNERS = {
    "core": ("benchmarks.classify_parts.run_core", "Core"),
    "mlx_lm": ("benchmarks.classify_parts.run_mlx_lm", "MlxLm"),
    "llama": ("benchmarks.classify_parts.run_llama", "LlamaLoop"),
    "ctranslate2": ("benchmarks.classify_parts.run_ctranslate2", "CTranslate2"),
    "transformers": ("benchmarks.classify_parts.run_transformers", "Transformers"),
    "openvino_export": ("benchmarks.classify_parts.run_openvino_export", "OpenVinoExport"),
    "matmul": ("benchmarks.classify_parts.run_matmul", "Matmul"),
}


def make_runner(spec: Spec) -> Runner:
    """Load a contestant in this process. Raises the errors of its load."""
    module, name = RUNNERS[spec.library]
    runner: Runner = getattr(importlib.import_module(module), name)(spec)
    return runner


def label_ids(encode: Encode, prompt: str) -> Ids:
    """Return the first token of each label after the prompt, by the peer's own tokenizer.

    Raises `UnavailableError` if they are not distinct.
    """
    head = len(encode(prompt))
    ids = [encode(f"{prompt} {label}")[head] for label in LABELS]
    if len(set(ids)) < len(ids):
        raise UnavailableError(f"the labels' first tokens {ids} are not distinct for this model")
    return ids


def by_length(encoded: Sequence[Ids], size: int) -> list[list[int]]:
    """Batches of row numbers, rows of like length together."""
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row]))
    return [order[start : start + size] for start in range(0, len(order), size)]


def spread(prompts: Sequence[str], count: int) -> list[str]:
    """Some of the prompts, from all over the workload."""
    step = max(1, len(prompts) // count)
    return list(prompts[::step][:count])
