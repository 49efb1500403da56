"""What a model says of each prompt of a task: its answers' raw log-probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from core.protocols import TextModel
from core.tasks.words import Words, extending, may_overlap, summed, tokenizing
from core.types import ClassifyResult, Token


@dataclass(frozen=True, slots=True)
class Answer:
    """What the model said of one prompt, or the error of its text."""

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
    """The answer behind each prompt, of the results of a classify call with all words."""
    shown = tokenizing(model) if may_overlap(words) else None
    asked = iter(prompts)
    for result in results:
        prompt = next(asked)
        if result.error is not None:
            yield Answer(error=result.error)
            continue
        twice: frozenset[str] = frozenset()
        if shown is not None:
            twice = extending(prompt, words, prefix, shown)
        yield Answer(summed(result.logprobs, words, twice), result.label_mass, result.token)
