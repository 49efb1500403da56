"""A model's answers to the prompts of a task, as raw scores of its labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from core.errors import TaskError
from core.kit.base import RequestClock
from core.kit.support import block_sizes
from core.options import GenerateConfig
from core.protocols import TextModel
from core.types import ClassifyResult, Token
from core_tasks.words import Words, extending, may_overlap, summed, tokenizing

R = TypeVar("R")
Progress = Callable[[int, int], None]
"""A function that is called with the number of finished prompts, and with that of all."""

_BLOCKS = 8, 256  # prompts, first and largest: a figure soon, then more work to share
_LEAST_TIMEOUT = 1e-9  # seconds


def in_blocks(
    run: Callable[[Sequence[str]], Sequence[R]], prompts: Sequence[str], progress: Progress
) -> list[R]:
    """Return the results of the prompts, run in blocks after each of which progress is reported.

    The blocks do not depend on the speed, so that results are repeatable.
    """
    results: list[R] = []
    progress(0, len(prompts))
    for size in block_sizes(*_BLOCKS):
        if len(results) >= len(prompts):
            break
        results += run(prompts[len(results) : len(results) + size])
        progress(len(results), len(prompts))
    return results


def part_of(progress: Progress | None, before: int, total: int) -> Progress | None:
    """Return the progress of a part of the work: ``before`` prompts are done, of a ``total``."""
    if progress is None:
        return None
    return lambda done, _: progress(before + done, total)


def classified(
    model: TextModel,
    prompts: Sequence[str],
    request: GenerateConfig,
    progress: Progress | None = None,
) -> list[ClassifyResult]:
    """Return the results of a classify call; with ``progress``, of one call per block."""
    if progress is None:
        return model.classify(prompts, request)
    clock = RequestClock(request)

    def run(block: Sequence[str]) -> list[ClassifyResult]:
        if request.timeout is None:
            return model.classify(block, request)
        left = max(request.timeout - clock.seconds, _LEAST_TIMEOUT)  # of all blocks together
        return model.classify(block, replace(request, timeout=left))

    return in_blocks(run, prompts, progress)


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's answer to one prompt, or the error of its text.

    ``scores`` are the labels' log-probabilities; of a model of label sentences, which has none
    (``logprobs`` is None), the logarithms of its probabilities.
    """

    scores: dict[str, float] = field(default_factory=dict)
    logprobs: dict[str, float] | None = None
    label_mass: float | None = None
    token: Token | None = None
    error: Exception | None = None


def answers(
    model: TextModel,
    words: Words,
    prefix: str,
    prompts: Iterable[str],
    results: Iterable[ClassifyResult],
) -> Iterator[Answer]:
    """Yield the answer to each prompt, from the results of a classify call with all words."""
    overlapping = may_overlap(words)
    remaining = iter(prompts)
    for result in results:
        prompt = next(remaining)
        if result.error is not None:
            yield Answer(error=result.error)
        elif result.logprobs is None:
            yield Answer(summed(_scores(result), words, frozenset()))
        else:
            twice: frozenset[str] = frozenset()
            if overlapping:
                twice = extending(prompt, words, prefix, tokenizing(model))
            sums = summed(result.logprobs, words, twice)
            yield Answer(sums, sums, result.label_mass, result.token)


def _scores(result: ClassifyResult) -> dict[str, float]:
    if result.probabilities is None:
        raise TaskError(
            "The backend returned no probabilities of labels, which a task requires. Use a "
            "backend that does: `infer-cli backends` lists them."
        )
    return logarithms(result.probabilities)


def logarithms(probabilities: Mapping[str, float]) -> dict[str, float]:
    """Return the logarithm of each label's probability; that of 0 is -infinity."""
    return {label: math.log(p) if p > 0 else -math.inf for label, p in probabilities.items()}
