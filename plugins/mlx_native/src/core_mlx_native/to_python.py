"""Typed conversions from MLX to Python. Run on the owner thread."""

from __future__ import annotations

from array import array
from typing import cast

import mlx.core as mx


def ints(values: mx.array) -> list[int]:
    """Return a vector of integers as a list."""
    return cast("list[int]", values.tolist())


def number(value: mx.array) -> float:
    """Return a single number."""
    return cast("float", value.item())


def bools(values: mx.array) -> list[bool]:
    """Return a vector of booleans as a list."""
    return cast("list[bool]", values.tolist())


def floats(values: mx.array) -> list[float]:
    """Return a vector of floats as a list."""
    return cast("list[float]", values.tolist())


def float_rows(values: mx.array) -> list[list[float]]:
    """Return a matrix of floats as a list of rows."""
    return cast("list[list[float]]", values.tolist())


def float_array(values: mx.array) -> array[float]:
    """Return an evaluated float32 vector as ``array('f')``, copied once through the buffer
    protocol.
    """
    copied = array("f")
    copied.frombytes(memoryview(values).cast("B"))  # type: ignore[arg-type]  # its stubs forget it
    return copied


def float_arrays(values: mx.array) -> list[array[float]]:
    """Return an evaluated float32 matrix, row by row: nothing is queued on the device."""
    size = values.shape[-1] * values.itemsize
    raw = memoryview(values).cast("B")  # type: ignore[arg-type]  # its stubs forget it
    rows = [array("f") for _ in range(len(values))]
    for index, row in enumerate(rows):
        row.frombytes(raw[index * size : (index + 1) * size])
    return rows
