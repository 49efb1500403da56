"""A model's answers to the prompts of a task, as raw log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from core.protocols import TextModel
from core.types import ClassifyResult, Token
from core_tasks.words import Words, extending, may_overlap, summed, tokenizing


@dataclass(frozen=True, slots=True)
class Answer:
    """The model's answer to one prompt, or the error of its text."""

    logprobs: dict[str, float] = field(default_factory=dict)
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
    shown = tokenizing(model) if may_overlap(words) else None
    remaining = iter(prompts)
    for result in results:
        prompt = next(remaining)
        if result.error is not None:
            yield Answer(error=result.error)
            continue
        twice: frozenset[str] = frozenset()
        if shown is not None:
            twice = extending(prompt, words, prefix, shown)
        yield Answer(summed(result.logprobs, words, twice), result.label_mass, result.token)
