"""A model's answers to the prompts of a task, as raw scores of its labels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from core.errors import TaskError
from core.protocols import TextModel
from core.types import ClassifyResult, Token
from core_tasks.words import Words, extending, may_overlap, summed, tokenizing


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
