"""Differentiable `Ops` for training on a CPU.

`DifferentiableOps` are MLX's own operations, which support every transformation of MLX.
`TrainingOps` compute activations, softmax and the LM head's losses in numpy, on all cores, and give
MLX their gradients (`mx.custom_function`): they support `mx.grad` and `mx.vjp`, not `mx.jvp`. MLX
computes ``exp`` one number at a time on one core, and each of its operations reads and writes the
complete array.

Shapes: B rows, T tokens, D head size, S positions, N places, H hidden size, V vocabulary.
"""

from __future__ import annotations

import mlx.core as mx

from core.kit.base import Check
from core_mlx_native.cpu import training_numpy
from core_mlx_native.cpu.ops import CpuOps
from core_mlx_native.network.ops import ACTIVATIONS, Ops
from core_mlx_native.network.values import LMHead, Mask


class DifferentiableOps(Ops):
    """MLX's own operations, for a network laid out by `CpuOps`."""

    has_causal_kernel = CpuOps.has_causal_kernel
    has_rope_kernel = CpuOps.has_rope_kernel
    head_floats = CpuOps.head_floats
    lays_out_wide = CpuOps.lays_out_wide

    def gated(self, activation: str, gate: mx.array, up: mx.array) -> mx.array:
        """See `Ops`; not compiled, for mx.compile would start a C++ compiler at run time."""
        return ACTIVATIONS[activation](gate) * up

    def fuses(self, head_dim: int, length: int) -> bool:
        """Return True: with a gradient, MLX computes attention from its parts."""
        return True

    def before_layer(self, x: mx.array, check: Check) -> None:
        """Call the check. The thread count of products is fixed, so that steps are repeatable."""
        check()


class TrainingOps(DifferentiableOps):
    """The operations of a float32 network, with numpy where MLX is slow."""

    def gated(self, activation: str, gate: mx.array, up: mx.array) -> mx.array:
        """See `Ops`; ``gate`` is kept: its gradient needs it."""
        result: mx.array = training_numpy.GATED[activation](gate, up)
        return result

    def attention(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        scale: float,
        cap: float | None,
        mask: Mask,
    ) -> mx.array:
        """See `Ops`; with a cap, MLX's own operations."""
        if cap is not None or not isinstance(mask, mx.array):
            return super().attention(queries, keys, values, scale, cap, mask)
        batch, heads, length, dim = queries.shape
        grouped = (queries * scale).reshape(batch, keys.shape[1], -1, dim)
        scores = grouped @ keys.swapaxes(-1, -2)  # [B, kv heads, group * T, S]
        shares = training_numpy.softmax(scores, mask)
        return (shares @ values).reshape(batch, heads, length, dim)

    def token_losses(self, head: LMHead, hidden: mx.array, targets: mx.array) -> mx.array:
        """See `Ops`; logits are freed once read, and never kept for the gradient."""
        if head.head_bias is not None:
            return super().token_losses(head, hidden, targets)
        cap = head.config.logit_cap
        return training_numpy.token_losses(head.head_matrix, cap, head.norm(hidden), targets)
