"""Prompts as token ids: one or many, ragged or padded on the left, as lists or as arrays."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from core import validate
from core.errors import InvalidOptionError


class Array(Protocol):
    """An array of MLX, numpy or torch."""

    def tolist(self) -> Any:
        """Return its values as nested lists."""
        ...


TokenIds: TypeAlias = Sequence[int] | Sequence[Sequence[int]] | Array | Sequence[Array]
"""One row of integers, or several."""


def token_prompts(prompts: Any, attention_mask: Any = None) -> list[list[int]]:
    """Return the ids of each prompt without padding, for one prompt or several, lists or arrays.

    Raises TypeError for prompts that are not lists of ids, `InvalidOptionError` for an invalid id,
    and for a mask of another shape, or one that is not zeros (padding), then ones; False and True
    are accepted.
    """
    rows = [list(validate.integers("prompts", row, 0)) for row in _rows(prompts, "prompts")]
    if attention_mask is None:
        return rows
    masks = _rows(attention_mask, "attention_mask")
    if [len(mask) for mask in masks] != [len(row) for row in rows]:
        raise InvalidOptionError("attention_mask", _shape(masks), f"the shape {_shape(rows)}")
    return [_unpadded(row, mask) for row, mask in zip(rows, masks, strict=True)]


def token_prompt(prompt: Any) -> list[int]:
    """Return the ids of one prompt; raises like `token_prompts`, and TypeError for several."""
    row = _plain(prompt)
    if not isinstance(row, list) or any(isinstance(_plain(token), list) for token in row):
        raise TypeError("prompt must be a list or an array of integers.")
    return list(validate.integers("prompts", row, 0))


def token_pairs(prompts: Any, continuations: Any) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each prompt with those of its continuation; raises like `token_prompts`."""
    heads, tails = token_prompts(prompts), token_prompts(continuations)
    if len(heads) != len(tails):
        raise InvalidOptionError(
            "continuations", [len(tail) for tail in tails], f"{len(heads)}, one for each prompt"
        )
    return list(zip(heads, tails, strict=True))


def _rows(values: Any, name: str) -> list[list[Any]]:
    plain = _plain(values)
    rows = [_plain(row) for row in plain] if isinstance(plain, list) else [plain]
    if isinstance(plain, list) and rows and not isinstance(rows[0], list):
        rows = [rows]
    if not all(isinstance(row, list) for row in rows):
        raise TypeError(f"{name} must be a list, a list of lists, or an array of integers.")
    return rows


def _plain(values: Any) -> Any:
    """Return several values as a list; arrays of any library have ``tolist()``."""
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
