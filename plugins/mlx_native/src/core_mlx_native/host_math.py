"""Activations and softmax on a CPU, through numpy.

MLX computes ``exp`` and ``tanh`` there one number at a time, on one core: 20 ns each, which is more
than the matrix products around them take. numpy does it in vectors, here on all cores, and no
less exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from core.serving.host_cpus import usable_cores
from core.serving.threads import begin

Floats = npt.NDArray[np.float32]
Fill = Callable[[slice], None]

_BLOCK = 1 << 15  # numbers that a core works on at a time: they stay in its cache
_WORTH_THREADS = 1 << 17


def gated_silu(gate: mx.array, up: mx.array) -> mx.array:
    """``silu(gate) * up``, float32 of any shape."""
    return _gated(gate, up, _sigmoid)


def gated_gelu_tanh(gate: mx.array, up: mx.array) -> mx.array:
    """``gelu(gate) * up`` in the tanh approximation, float32 of any shape."""
    return _gated(gate, up, _gelu_sigmoid)


GATED = {"silu": gated_silu, "gelu_tanh": gated_gelu_tanh}


def softmax(scores: mx.array, mask: mx.array | None, cap: float | None = None) -> mx.array:
    """``softmax(softcap(scores) + mask)`` over the last axis: [B, kv heads, group * T, S].

    ``mask`` is additive, [1 or B, 1, T, S]. No row may be masked whole.
    """
    batch, kv_heads, rows, size = scores.shape
    x: Floats = np.asarray(scores).reshape(batch * kv_heads, rows, size)
    hidden: Floats | None = None if mask is None else np.asarray(mask)[:, 0]
    out = np.empty_like(x)

    def fill(part: slice) -> None:
        for index in range(part.start, part.stop):
            row = out[index]
            source = x[index] if cap is None else np.tanh(x[index] / np.float32(cap)) * cap
            np.copyto(row, source)
            if hidden is not None:
                shown = hidden[index // kv_heads if len(hidden) > 1 else 0]
                row.reshape(-1, *shown.shape)[...] += shown
            row -= row.max(axis=-1, keepdims=True)
            np.exp(row, out=row)
            row /= row.sum(axis=-1, keepdims=True)

    _on_all_cores(fill, len(x), rows * size)
    return mx.array(out.reshape(scores.shape))


def log_total(logits: mx.array) -> Floats:
    """The logarithm of the sum of exponentials over the last axis: [...], from [..., V]."""
    x: Floats = np.asarray(logits).reshape(-1, logits.shape[-1])
    out = np.empty(len(x), np.float32)

    def fill(part: slice) -> None:
        for index in range(part.start, part.stop):
            top = x[index].max()
            out[index] = top + np.log(np.exp(x[index] - top).sum(dtype=np.float64))

    _on_all_cores(fill, len(x), x.shape[-1])
    return out.reshape(logits.shape[:-1])


def _gated(gate: mx.array, up: mx.array, weigh: Callable[[Floats, Floats], None]) -> mx.array:
    a: Floats = np.asarray(gate).reshape(-1)
    b: Floats = np.asarray(up).reshape(-1)
    out = np.empty_like(a)

    def fill(part: slice) -> None:
        with np.errstate(over="ignore"):  # of a large negative gate: x / infinity is the 0 wanted
            for start in range(part.start, part.stop, _BLOCK):
                block = slice(start, min(start + _BLOCK, part.stop))
                weigh(a[block], out[block])
                out[block] *= b[block]

    _on_all_cores(fill, a.size, 1)
    return mx.array(out.reshape(gate.shape))


def _sigmoid(x: Floats, out: Floats) -> None:
    """``x * sigmoid(x)``."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.divide(x, out, out=out)


def _gelu_sigmoid(x: Floats, out: Floats) -> None:
    """``0.5 x (1 + tanh(y))`` is ``x * sigmoid(2 y)``, y = sqrt(2 / pi) (x + 0.044715 x**3)."""
    np.multiply(x, x, out=out)
    out *= np.float32(-2 * 0.7978845608028654 * 0.044715)
    out -= np.float32(2 * 0.7978845608028654)
    out *= x
    np.exp(out, out=out)
    out += 1
    np.divide(x, out, out=out)


def _on_all_cores(fill: Fill, items: int, size: int) -> None:
    """Fill a slice of the items on each core; alone where they are few."""
    cores = _cores() if items * size >= _WORTH_THREADS else 1
    bounds = [items * core // cores for core in range(cores + 1)]
    parts = [slice(start, stop) for start, stop in pairwise(bounds)]
    waiting = [begin(_pool(), partial(fill, part)) for part in parts[1:]]
    fill(parts[0])
    for future in waiting:
        future.result()


_cores = cache(usable_cores)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, _cores() - 1), thread_name_prefix="core-math")
