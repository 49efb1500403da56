"""Products of a few rows with a weight, by MLX's BLAS on numpy arrays.

MLX computes a product on another thread and has to wait for it before numpy can use it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from core_mlx_native.cpu.blas import blas_report
from core_mlx_native.cpu.linker import has_symbol

Floats = npt.NDArray[np.float32]

_ROW_MAJOR, _AS_IS, _TRANSPOSED = 101, 111, 112  # CBLAS_ORDER and CBLAS_TRANSPOSE
_PREFIXES = ("", "scipy_")
_INT, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_float, ctypes.c_void_p


@dataclass(frozen=True, slots=True)
class Functions:
    """``cblas_sgemv`` and ``cblas_sgemm`` of one library."""

    gemv: Callable[..., None]
    gemm: Callable[..., None]

    def by_heads(self, x: Floats, others: Floats, *, transposed: bool) -> Floats:
        """Multiply each [M, K] of ``x`` by its matrix of ``others``, or by its transpose.

        ``x`` [B, heads, M, K] is contiguous, and so is each row of ``others`` [B, heads, S, D].
        Returns [B, heads, M, S] or [B, heads, M, D].
        """
        batch, heads, count, inner = x.shape
        between, apart, stride, _ = others.strides
        wide = others.shape[2 if transposed else 3]
        out = np.empty((batch, heads, count, wide), np.float32)
        turn = _TRANSPOSED if transposed else _AS_IS
        sizes = (_ROW_MAJOR, _AS_IS, turn, count, wide, inner)

        here, there, start = x.ctypes.data, out.ctypes.data, others.ctypes.data
        for row in range(batch):
            for head in range(heads):
                weight = start + row * between + head * apart
                self.gemm(*sizes, 1.0, here, inner, weight, stride // 4, 0.0, there, wide)
                here += count * inner * 4
                there += count * wide * 4
        return out


@cache
def functions() -> Functions | None:
    """Find the functions of the BLAS that replaces MLX's; None without one."""
    if not blas_report().active:
        return None
    library = ctypes.CDLL(blas_report().path)
    for prefix in _PREFIXES:
        if has_symbol(library, f"{prefix}cblas_sgemv"):
            gemv = getattr(library, f"{prefix}cblas_sgemv")
            gemm = getattr(library, f"{prefix}cblas_sgemm")
            gemv.argtypes = (*[_INT] * 4, _FLOAT, *[_POINTER, _INT] * 2, _FLOAT, _POINTER, _INT)
            gemm.argtypes = (*[_INT] * 6, _FLOAT, *[_POINTER, _INT] * 2, _FLOAT, _POINTER, _INT)
            gemv.restype = gemm.restype = None
            return Functions(gemv, gemm)
    return None


class Product:
    """``x @ transposed``, for a weight [columns, rows]; it or its transpose is contiguous.

    ``rows``: the size of a result.
    """

    def __init__(self, transposed: Floats, by: Functions) -> None:
        self._by = by
        self._columns, self.rows = transposed.shape
        self._is_whole = transposed.flags.c_contiguous
        self._stride = self.rows if self._is_whole else self._columns
        self._transposed, self._address = transposed, transposed.ctypes.data

    def into(self, x: Floats, out: Floats) -> None:
        """Multiply contiguous [M, columns] into [M, rows], whose rows may have gaps."""
        count, rows, columns = len(x), self.rows, self._columns
        weight, stride, here, there = self._address, self._stride, x.ctypes.data, out.ctypes.data

        if count == 1:  # columns of the weight times numbers, or rows of its transpose times x
            turn = _TRANSPOSED if self._is_whole else _AS_IS
            high, wide = (columns, rows) if self._is_whole else (rows, columns)
            self._by.gemv(_ROW_MAJOR, turn, high, wide, 1.0, weight, stride, here, 1, 0.0, there, 1)
            return

        turn = _AS_IS if self._is_whole else _TRANSPOSED
        sizes = (_ROW_MAJOR, _AS_IS, turn, count, rows, columns)
        apart = out.strides[0] // out.itemsize
        self._by.gemm(*sizes, 1.0, here, columns, weight, stride, 0.0, there, apart)

    def add_back(self, y: Floats, out: Floats) -> None:
        """Add ``y @ transposed.T`` to ``out`` [M, columns]; rows of ``y`` may have gaps."""
        count, rows, columns = len(y), self.rows, self._columns
        turn = _TRANSPOSED if self._is_whole else _AS_IS
        sizes = (_ROW_MAJOR, _AS_IS, turn, count, columns, rows)
        apart, wide = y.strides[0] // y.itemsize, out.strides[0] // out.itemsize
        here, there = y.ctypes.data, out.ctypes.data
        self._by.gemm(*sizes, 1.0, here, apart, self._address, self._stride, 1.0, there, wide)
