"""The angles of RoPE, computed on the host for the tokens of a pass.

Shapes: T tokens of a pass, D head size.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from core_runtime.checkpoint.rope import Rope

Floats = npt.NDArray[np.float32]


class Angles:
    """Cosines and sines of a RoPE by position, computed on the host in float64.

    In a bfloat16 graph a position above 256 is not exact, so its angles would be wrong.
    """

    def __init__(self, rope: Rope) -> None:
        periods = np.array(rope.periods, np.float64)
        self._frequencies = 1.0 / np.concatenate([periods, periods])
        self._cosines = self._sines = np.zeros((0, len(self._frequencies)), np.float32)

    def at(self, positions: npt.NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the cosines and sines of positions, each [T, 1, 1, D]."""
        needed = int(positions.max()) + 1
        if needed > len(self._cosines):
            angles = np.arange(max(needed, 2 * len(self._cosines)))[:, None] * self._frequencies
            self._cosines = np.cos(angles).astype(np.float32)
            self._sines = np.sin(angles).astype(np.float32)
        shape = (len(positions), 1, 1, -1)
        return self._cosines[positions].reshape(shape), self._sines[positions].reshape(shape)
