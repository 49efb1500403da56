"""The weights and inputs of the tiny encoders, for the script that makes the numbers and for tests.

Imports numpy alone.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

VOCABULARY = 64
_random = np.random.default_rng(7)
ROWS: list[list[int]] = [
    _random.integers(4, VOCABULARY, size).tolist() for size in (1, 3, 7, 12, 40, 5)
]
PAIRS: list[tuple[list[int], list[int]]] = [
    (_random.integers(4, VOCABULARY, a).tolist(), _random.integers(4, VOCABULARY, b).tolist())
    for a, b in ((2, 3), (9, 4), (30, 6))
]


def drawn(case: str, tensors: Mapping[str, Sequence[int]]) -> dict[str, npt.NDArray[np.float32]]:
    """Return random tensors, large enough for a wrong mask or position to show."""
    return {name: _tensor(f"{case} {name}", shape) for name, shape in tensors.items()}


def _tensor(seed: str, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    around = 1.0 if "norm" in seed.lower() and seed.endswith("weight") else 0.0
    values: npt.NDArray[np.float32] = random.normal(around, 0.2, tuple(shape)).astype(np.float32)
    return values
