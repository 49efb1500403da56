"""Values on their way from MLX to Python, with their types. Run on the owner thread."""

from __future__ import annotations

from array import array
from typing import cast

import mlx.core as mx


def ints(values: mx.array) -> list[int]:
    """A vector of whole numbers as a list."""
    return cast("list[int]", values.tolist())


def number(value: mx.array) -> float:
    """A single number."""
    return cast("float", value.item())


def bools(values: mx.array) -> list[bool]:
    """A vector of truth values as a list."""
    return cast("list[bool]", values.tolist())


def floats(values: mx.array) -> list[float]:
    """A vector of floats as a list."""
    return cast("list[float]", values.tolist())


def float_rows(values: mx.array) -> list[list[float]]:
    """A matrix of floats as a list of rows."""
    return cast("list[list[float]]", values.tolist())


def float_array(values: mx.array) -> array[float]:
    """An evaluated float32 vector as ``array('f')``, copied once through the buffer protocol."""
    copied = array("f")
    copied.frombytes(memoryview(values).cast("B"))  # type: ignore[arg-type]  # its stubs forget it
    return copied


def float_arrays(values: mx.array) -> list[array[float]]:
    """An evaluated float32 matrix, row by row: nothing is queued on the device."""
    size = values.shape[-1] * values.itemsize
    raw = memoryview(values).cast("B")  # type: ignore[arg-type]  # its stubs forget it
    rows = [array("f") for _ in range(len(values))]
    for index, row in enumerate(rows):
        row.frombytes(raw[index * size : (index + 1) * size])
    return rows
