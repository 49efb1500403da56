"""Prompts as token ids, and full sequences back: for code that evaluates a model."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from core import validate
from core.errors import InvalidOptionError
from core.types import BatchResult, FinishReason


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and what was generated behind it; the token that ended it is left out.

    ``generated[i]`` tells whether ``ids[i]`` was generated. ``logprobs`` has one value per
    generated token, when they were asked for.
    """

    ids: tuple[int, ...]
    generated: tuple[bool, ...]
    finish_reason: FinishReason
    error: Exception | None
    logprobs: tuple[float, ...] = ()

    @classmethod
    def of(cls, prompt: Sequence[int], result: BatchResult) -> Self:
        """The prompt's tokens, then the result's."""
        new = [token.id for token in result.tokens]
        found = (token.logprob for token in result.tokens)
        return cls(
            ids=(*prompt, *new),
            generated=(False,) * len(prompt) + (True,) * len(new),
            finish_reason=result.finish_reason,
            error=result.error,
            logprobs=tuple(logprob for logprob in found if logprob is not None),
        )


def token_prompts(prompts: Any, attention_mask: Any = None) -> list[list[int]]:
    """The ids of each prompt without padding, from one prompt or several.

    Raises TypeError for what is no list of ids, `InvalidOptionError` for a mask of another shape,
    or one that is not zeros (padding), then ones.
    """
    rows = _rows(prompts, "prompts")
    if attention_mask is None:
        return rows
    masks = _rows(attention_mask, "attention_mask")
    if [len(mask) for mask in masks] != [len(row) for row in rows]:
        raise InvalidOptionError("attention_mask", _shape(masks), f"the shape {_shape(rows)}")
    return [_unpadded(row, mask) for row, mask in zip(rows, masks, strict=True)]


def _rows(values: Any, name: str) -> list[list[int]]:
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise TypeError(f"{name} takes token ids: a list, or a list of lists.")
    rows = list(values)
    if rows and not isinstance(rows[0], Iterable):
        rows = [rows]
    return [list(validate.integers(name, row, 0)) for row in rows]


def _unpadded(row: list[int], mask: list[int]) -> list[int]:
    start = operator.indexOf(mask, 1) if 1 in mask else len(mask)
    if mask != [0] * start + [1] * (len(mask) - start):
        raise InvalidOptionError("attention_mask", mask, "zeros for padding on the left, then ones")
    return row[start:]


def _shape(rows: list[list[int]]) -> list[int]:
    return [len(row) for row in rows]
