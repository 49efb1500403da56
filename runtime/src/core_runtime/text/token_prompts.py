"""Prompts as token ids, and full sequences back: for code that evaluates a model."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeAlias

from core import validate
from core.errors import InvalidOptionError
from core.types import BatchResult, FinishReason


class Array(Protocol):
    """An array of MLX, numpy or torch."""

    def tolist(self) -> Any:
        """Its values as nested lists."""
        ...


TokenIds: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | Array | Sequence[Array]
"""One row of whole numbers, or several."""


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
    """The ids of each prompt without padding, from one prompt or several, lists or arrays.

    Raises TypeError for what is no list of ids, `InvalidOptionError` for what is no id, and for a
    mask of another shape, or one that is not zeros (padding), then ones; False and True will do.
    """
    rows = [list(validate.integers("prompts", row, 0)) for row in _rows(prompts, "prompts")]
    if attention_mask is None:
        return rows
    masks = _rows(attention_mask, "attention_mask")
    if [len(mask) for mask in masks] != [len(row) for row in rows]:
        raise InvalidOptionError("attention_mask", _shape(masks), f"the shape {_shape(rows)}")
    return [_unpadded(row, mask) for row, mask in zip(rows, masks, strict=True)]


def _rows(values: Any, name: str) -> list[list[Any]]:
    plain = _plain(values)
    rows = [_plain(row) for row in plain] if isinstance(plain, list) else [plain]
    if isinstance(plain, list) and rows and not isinstance(rows[0], list):
        rows = [rows]
    if not all(isinstance(row, list) for row in rows):
        raise TypeError(f"{name} takes whole numbers: a list, a list of lists, or an array.")
    return rows


def _plain(values: Any) -> Any:
    """Several values as a list; arrays of any library know how to become one."""
    if hasattr(values, "tolist"):
        return values.tolist()
    several = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    return list(values) if several else values


def _unpadded(row: list[int], mask: list[Any]) -> list[int]:
    start = operator.indexOf(mask, 1) if 1 in mask else len(mask)
    if mask != [0] * start + [1] * (len(mask) - start):
        raise InvalidOptionError("attention_mask", mask, "zeros for padding on the left, then ones")
    return row[start:]


def _shape(rows: list[list[Any]]) -> list[int]:
    return [len(row) for row in rows]
