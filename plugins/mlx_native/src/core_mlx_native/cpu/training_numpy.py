"""Activations, softmax and LM head losses with gradients, through numpy on all cores.

Each is an `mx.custom_function`: MLX computes the operations around it, and calls these for values
and gradients. Numbers are float32, as in `numpy_ops`; only the scores of softmax are overwritten.

Shapes: B rows, T tokens, S positions, N places, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import mlx.core as mx
import numpy as np

from core_mlx_native.cpu import numpy_ops
from core_mlx_native.cpu.numpy_ops import BLOCK, Floats, on_all_cores
from core_mlx_native.network.values import Matrix

_LOGITS = 2**24  # per product of the LM head: 64 MiB, and enough rows for a fast product


# --------------------------------------------------------------------------- activations


def _silu(x: Floats) -> tuple[Floats, Floats]:
    """Return ``x * sigmoid(x)``, and its slope ``s + x s (1 - s)``."""
    s = _sigmoid(x)
    value = x * s
    return value, s + value * (1 - s)


def _gelu_tanh(x: Floats) -> tuple[Floats, Floats]:
    """Return ``x * sigmoid(2 y)``, y = sqrt(2 / pi) (x + 0.044715 x**3), and its slope."""
    c = np.float32(2 * 0.7978845608028654)
    square = x * x
    s = _sigmoid(c * x * (1 + np.float32(0.044715) * square))
    value = x * s
    return value, s + value * (1 - s) * (c * (1 + np.float32(3 * 0.044715) * square))


def _sigmoid(x: Floats) -> Floats:
    s = np.exp(-x)
    s += 1
    return np.divide(1, s, out=s)


def _gated(weigh: Callable[[Floats], tuple[Floats, Floats]]) -> Any:
    """Return ``activation(gate) * up``, of any shape, as a differentiable function."""

    @mx.custom_function
    def gated(gate: mx.array, up: mx.array) -> mx.array:
        out = mx.zeros(gate.shape)
        x, y, z = map(_flat, (gate, up, out))

        def fill(block: slice) -> None:
            np.multiply(weigh(x[block])[0], y[block], out=z[block])

        _shared_out(fill, x.size)
        return out

    @gated.vjp
    def gradient(primals: Any, cotangent: mx.array, _: mx.array) -> tuple[mx.array, mx.array]:
        gate, up = primals
        of_gate, of_up = mx.zeros(gate.shape), mx.zeros(up.shape)
        x, y, slope, to_gate, to_up = map(_flat, (gate, up, cotangent, of_gate, of_up))

        def fill(block: slice) -> None:
            value, rise = weigh(x[block])
            np.multiply(value, slope[block], out=to_up[block])
            rise *= slope[block]
            np.multiply(rise, y[block], out=to_gate[block])

        _shared_out(fill, x.size)
        return of_gate, of_up

    return gated


GATED = {"silu": _gated(_silu), "gelu_tanh": _gated(_gelu_tanh)}
"""``activation(gate) * up`` of each activation."""


# --------------------------------------------------------------------------- attention


def softmax(scores: mx.array, mask: mx.array) -> mx.array:
    """Return ``softmax(scores + mask)`` like `numpy_ops.softmax`, which overwrites ``scores``.

    With its gradient ``p (g - sum(g p))``.
    """

    @mx.custom_function
    def shares(scores: mx.array) -> mx.array:
        return numpy_ops.softmax(scores, mask)

    @shares.vjp
    def gradient(_: Any, cotangent: mx.array, shares: mx.array) -> mx.array:
        size = shares.shape[-1]
        out = mx.zeros(shares.shape)
        p, g, z = (_flat(array).reshape(-1, size) for array in (shares, cotangent, out))
        step = max(1, BLOCK // size)

        def fill(part: slice) -> None:
            for start in range(part.start, part.stop, step):
                rows = slice(start, min(start + step, part.stop))
                moved = g[rows] * p[rows]
                np.multiply(p[rows], moved.sum(axis=-1, keepdims=True), out=z[rows])
                np.subtract(moved, z[rows], out=z[rows])

        on_all_cores(fill, len(p), size)
        return out

    result: Any = shares(scores)
    return cast(mx.array, result)


# --------------------------------------------------------------------------- the head


def token_losses(head: Matrix, cap: float | None, hidden: mx.array, targets: mx.array) -> mx.array:
    """Return ``-log softmax(softcap(hidden @ head.T))[target]``: [N], from normed states [N, H].

    The gradient is computed in the same pass, from the logits of some rows at a time: for all rows
    they would take more memory than the rest of a step.
    """

    @mx.custom_function
    def losses(hidden: mx.array) -> tuple[mx.array, mx.array]:
        wanted, vocabulary = np.asarray(targets), head.shape[0]
        values = np.empty(len(wanted), np.float32)
        slopes = []
        step = max(1, _LOGITS // vocabulary)
        for start in range(0, len(wanted), step):
            logits = mx.contiguous(head.product(hidden[start : start + step]))
            rows = _whole(logits)
            fill = partial(_losses, rows, wanted[start : start + step], cap, values[start:])
            on_all_cores(fill, len(rows), vocabulary)
            slopes.append(head.back(logits))
            mx.eval(slopes[-1])
        return mx.array(values), mx.concatenate(slopes)

    @losses.vjp
    def gradient(_: Any, cotangents: Any, outputs: Any) -> mx.array:
        of_losses: mx.array = cotangents[0]
        slopes: mx.array = outputs[1]
        return of_losses[:, None] * slopes

    results: Any = losses(hidden)
    return cast(mx.array, results[0])


def _losses(logits: Floats, targets: Any, cap: float | None, losses: Floats, part: slice) -> None:
    """Return the loss of each row of ``part``, and replace its logits [N, V] by the gradient."""
    for row in range(part.start, part.stop):
        x, target = logits[row], targets[row]
        slope: Floats | None = None
        if cap is not None:
            x /= np.float32(cap)
            np.tanh(x, out=x)
            slope = 1 - x * x
            x *= np.float32(cap)

        top, chosen = x.max(), x[target]
        x -= top
        np.exp(x, out=x)
        total = x.sum(dtype=np.float64)
        losses[row] = np.log(total) + top - chosen
        x *= np.float32(1 / total)
        x[target] -= 1
        if slope is not None:
            x *= slope


# --------------------------------------------------------------------------- views


def _flat(x: mx.array) -> Floats:
    """Return the numbers of an array as one row; to write to it, the array must be contiguous."""
    return _whole(x).reshape(-1)


def _whole(x: mx.array) -> Floats:
    """Return a contiguous numpy view or copy of an array."""
    view: Floats = np.asarray(mx.contiguous(x))
    return view


def _shared_out(fill: Callable[[slice], None], size: int) -> None:
    """Fill ``size`` numbers on all cores, each in blocks that fit in its cache."""

    def in_blocks(part: slice) -> None:
        for start in range(part.start, part.stop, BLOCK):
            fill(slice(start, min(start + BLOCK, part.stop)))

    on_all_cores(in_blocks, size, 1)
