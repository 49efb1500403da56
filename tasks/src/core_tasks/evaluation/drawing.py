"""Texts sampled from a model: one for each prompt, or several from one prefill of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import CoreError
from core.extensions import Tokenizing, TokenPrompts
from core.options import GenerateConfig
from core.protocols import TextModel
from core.types import BatchResult, TokenSequence

Generate = Callable[[Sequence[str], GenerateConfig], Sequence[Any]]
"""Function from prompts to a `BatchResult` for each."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """One text, with the number of its ``tokens``, and their log-probabilities if known."""

    text: str
    tokens: int
    logprobs: tuple[float, ...]
    finish_reason: str
    error: Exception | None = None

    @classmethod
    def of(cls, result: BatchResult) -> Drawn:
        """Return the text of a ``batch_generate`` result."""
        reported = (token.logprob for token in result.tokens)
        logprobs = tuple(value for value in reported if value is not None)
        size = len(result.tokens)
        return cls(result.text, size, logprobs, result.finish_reason, result.error)


def drawn(
    model: TextModel,
    prompts: Sequence[str],
    config: GenerateConfig,
    samples: int,
    generate: Generate,
) -> list[list[Drawn]]:
    """Return the samples of each prompt; with a seed the first equals the text of ``generate``."""
    if samples == 1:
        return [[Drawn.of(result)] for result in generate(prompts, config)]
    if isinstance(model, TokenPrompts) and isinstance(model, Tokenizing):
        return _at_once(model, model, prompts, config, samples)
    if config.seed is None:
        repeated = [prompt for prompt in prompts for _ in range(samples)]
        flat = iter(generate(repeated, config))
        return [[Drawn.of(next(flat)) for _ in range(samples)] for _ in prompts]
    rounds = [
        generate(prompts, replace(config, seed=config.seed + number)) for number in range(samples)
    ]
    return [[Drawn.of(result) for result in results] for results in zip(*rounds, strict=True)]


def _at_once(
    model: TokenPrompts,
    tokenizer: Tokenizing,
    prompts: Sequence[str],
    config: GenerateConfig,
    samples: int,
) -> list[list[Drawn]]:
    """Return all samples of all prompts; each prompt's are decoded together after one prefill."""
    encoded = [_ids(tokenizer, prompt) for prompt in prompts]
    rows = [ids for ids in encoded if not isinstance(ids, CoreError)]
    sequences = iter(model.generate_tokens(rows, config, num_samples=samples) if rows else ())
    return [
        [Drawn("", 0, (), "error", ids)] * samples
        if isinstance(ids, CoreError)
        else [_read(tokenizer, ids, next(sequences), config.stop) for _ in range(samples)]
        for ids in encoded
    ]


def _ids(tokenizer: Tokenizing, prompt: str) -> list[int] | CoreError:
    try:
        return tokenizer.encode(prompt)
    except CoreError as error:
        return error


def _read(
    tokenizer: Tokenizing, prompt: Sequence[int], sequence: TokenSequence, stop: Sequence[str]
) -> Drawn:
    """Return the text after the prompt, up to a stop string, which may begin in the last token."""
    before, whole = tokenizer.decode(prompt), tokenizer.decode(sequence.ids)
    new = sequence.ids[len(prompt) :]
    text = whole[len(before) :] if whole.startswith(before) else tokenizer.decode(new)
    ends = [place for string in stop if (place := text.find(string)) >= 0]
    text = text[: min(ends)] if ends else text
    return Drawn(text, len(new), sequence.logprobs, sequence.finish_reason, sequence.error)
