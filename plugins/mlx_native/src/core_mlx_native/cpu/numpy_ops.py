"""Activations, softmax and norms on a CPU, through numpy.

There MLX computes ``exp`` and ``tanh`` one number at a time, on one core: 20 ns each, longer than
the matrix products around them. numpy is vectorised, runs here on all cores (in a lane on its own
core), and is as exact. Results overwrite the first argument: new memory for each, and a copy into
MLX, took longer than the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from core_mlx_native.cpu.blas_threads import free_of
from core_mlx_native.cpu.lanes import in_lane
from core_runtime.machine import usable_cores
from core_runtime.threads import begin

Floats = npt.NDArray[np.float32]
Fill = Callable[[slice], None]

BLOCK = 1 << 15  # numbers that a core processes at a time: they fit in its cache
_WORTH_THREADS = 1 << 17


def gated_silu(gate: mx.array, up: mx.array) -> mx.array:
    """Return ``silu(gate) * up``, float32 of any shape, written over ``gate``."""
    return _gated(gate, up, _sigmoid)


def gated_gelu_tanh(gate: mx.array, up: mx.array) -> mx.array:
    """Return ``gelu(gate) * up`` in the tanh approximation, written over ``gate``."""
    return _gated(gate, up, _gelu_sigmoid)


GATED = {"silu": gated_silu, "gelu_tanh": gated_gelu_tanh}


def softmax(scores: mx.array, mask: mx.array | None, cap: float | None = None) -> mx.array:
    """Return ``softmax(softcap(scores) + mask)`` over the last axis: [B, kv heads, group * T, S].

    ``mask`` is additive, [1 or B, 1, T, S]. No row may be completely masked. The result is written
    over ``scores``.
    """
    batch, kv_heads, rows, size = scores.shape
    scores, x = _given_up(scores)
    x = x.reshape(batch * kv_heads, rows, size)
    hidden: Floats | None = None if mask is None else np.asarray(mask)[:, 0]
    step = max(1, BLOCK // (rows * size))

    def fill(part: slice) -> None:
        for start in range(part.start, part.stop, step):
            block = x[start : min(start + step, part.stop)]

            # The soft cap of Gemma 2: cap * tanh(scores / cap).
            if cap is not None:
                block /= np.float32(cap)
                np.tanh(block, out=block)
                block *= np.float32(cap)

            # All heads of a prompt share its mask.
            if hidden is not None:
                owners = np.arange(start, start + len(block)) // kv_heads
                shown = hidden[owners] if len(hidden) > 1 else hidden  # [block or 1, T, S]
                block.reshape(len(block), -1, *shown.shape[1:])[...] += shown[:, None]

            # Subtract the largest score, so that no exponential overflows.
            block -= block.max(axis=-1, keepdims=True)
            np.exp(block, out=block)
            block *= 1 / block.sum(axis=-1, keepdims=True)

    on_all_cores(fill, len(x), rows * size)
    return scores


def log_total(logits: mx.array) -> Floats:
    """Return the logarithm of the sum of exponentials over the last axis: [...], from [..., V].

    NaN if the largest one is infinite.
    """
    x: Floats = np.asarray(logits).reshape(-1, logits.shape[-1])
    out = np.empty(len(x), np.float32)

    def fill(part: slice) -> None:
        for index in range(part.start, part.stop):
            top = x[index].max()
            out[index] = top + np.log(np.exp(x[index] - top).sum(dtype=np.float64))

    on_all_cores(fill, len(x), x.shape[-1])
    return out.reshape(logits.shape[:-1])


def _gated(gate: mx.array, up: mx.array, weigh: Callable[[Floats, Floats], None]) -> mx.array:
    gate, x = _given_up(gate)
    a, b = x.reshape(-1), np.asarray(up).reshape(-1)

    def fill(part: slice) -> None:
        room = np.empty(BLOCK, np.float32)
        with np.errstate(over="ignore"):  # for a large negative gate: x / infinity is the correct 0
            for start in range(part.start, part.stop, BLOCK):
                block = slice(start, min(start + BLOCK, part.stop))

                weighed = room[: block.stop - start]
                weigh(a[block], weighed)
                np.multiply(weighed, b[block], out=a[block])

    on_all_cores(fill, a.size, 1)
    return gate


def _given_up(x: mx.array) -> tuple[mx.array, Floats]:
    """Return a disposable array, contiguous, and a writable view of it."""
    whole = mx.contiguous(x)
    return whole, np.asarray(whole)


def _sigmoid(x: Floats, out: Floats) -> None:
    """Compute ``x * sigmoid(x)`` into ``out``."""
    np.negative(x, out=out)
    np.exp(out, out=out)
    out += 1
    np.divide(x, out, out=out)


def _gelu_sigmoid(x: Floats, out: Floats) -> None:
    """Compute ``0.5 x (1 + tanh(y))`` into ``out``, y = sqrt(2 / pi) (x + 0.044715 x**3).

    That is ``x * sigmoid(2 y)``.
    """
    np.multiply(x, x, out=out)
    out *= np.float32(-2 * 0.7978845608028654 * 0.044715)
    out -= np.float32(2 * 0.7978845608028654)
    out *= x
    np.exp(out, out=out)
    out += 1
    np.divide(x, out, out=out)


WEIGHED = {"silu": _sigmoid, "gelu_tanh": _gelu_sigmoid}
"""Each activation of an array, computed into another."""


def on_all_cores(fill: Fill, items: int, size: int) -> None:
    """Fill a slice of the items on each core; use one core for few items, and in a lane."""
    cores = 1 if in_lane() or items * size < _WORTH_THREADS else free_of(_cores())
    bounds = [items * core // cores for core in range(cores + 1)]
    parts = [slice(start, stop) for start, stop in pairwise(bounds)]
    waiting = [begin(_pool(), partial(_filled, fill, part)) for part in parts[1:]]
    _filled(fill, parts[0])
    for future in waiting:
        future.result()


def _filled(fill: Fill, part: slice) -> None:
    with np.errstate(all="ignore"):  # NaN of a broken model is detected in its logits or loss
        fill(part)


_cores = cache(usable_cores)


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, _cores() - 1), thread_name_prefix="core-math")
