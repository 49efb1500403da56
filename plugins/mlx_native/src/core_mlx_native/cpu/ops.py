"""`Ops` for a CPU: numpy for large passes, and memory reuse within the cache."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from mlx import nn

from core.kit.base import Check, never_stop
from core_mlx_native.cpu import numpy_ops
from core_mlx_native.cpu.blas_threads import follow_load
from core_mlx_native.cpu.blocks import BlockMatrix
from core_mlx_native.cpu.few_tokens import FewTokens
from core_mlx_native.cpu.lanes import in_lane
from core_mlx_native.cpu.product import functions
from core_mlx_native.network.decoder import Layer
from core_mlx_native.network.layers import Dense
from core_mlx_native.network.ops import ACTIVATIONS, Ops
from core_mlx_native.network.values import Mask, Matrix
from core_runtime.checkpoint.config import LayerKind, ModelConfig

_FEW_TOKENS = 128  # up to which numpy on one core takes 0.85 to 0.95 of MLX's time
_WORTH_NUMPY = 64  # tokens per pass from which numpy's calls cost less than MLX's arithmetic


class CpuOps(Ops):
    """The operations of a CPU.

    ``with_numpy``: activations and softmax of large passes run in `numpy_ops`, in float32.
    """

    has_causal_kernel = False
    samples_by_mass = False
    has_rope_kernel = False  # MLX's kernel recomputes the same angles in every layer
    head_floats = 2**26  # one product at a time: 256 MiB
    lays_out_wide = True

    def __init__(self, with_numpy: bool = False, few_tokens: bool = False) -> None:
        self.with_numpy, self.few_tokens = with_numpy, few_tokens

    def laid_out(self, weight: mx.array) -> mx.array:
        """See `Ops`; copies a matrix at least as wide as high, so its transpose is contiguous.

        OpenBLAS then multiplies one row 1.2 to 1.6 times as fast, 28 rows 1.2 times, and 512 rows
        in the same time. With a higher matrix, one row would take a fifth longer.
        """
        rows, columns = weight.shape
        return mx.contiguous(weight.T) if rows >= columns else weight.T

    def tied_head(self, embedding: Matrix) -> Matrix:
        """See `Ops`."""
        by = functions() if self.few_tokens else None
        return (
            BlockMatrix(embedding.weight, by) if by and isinstance(embedding, Dense) else embedding
        )

    def short_layer(
        self, layer: nn.Module, config: ModelConfig, kind: LayerKind
    ) -> FewTokens | None:
        """See `Ops`."""
        if not (self.few_tokens and isinstance(layer, Layer)):
            return None
        return FewTokens.of(layer, config, kind)

    def is_short(self, x: mx.array) -> bool:
        """See `Ops`."""
        return self.few_tokens and x.size <= _FEW_TOKENS * x.shape[-1]

    def gated(self, activation: str, gate: mx.array, up: mx.array) -> mx.array:
        """See `Ops`; not compiled, because mx.compile would run a C++ compiler."""
        if self.with_numpy and _is_large(gate):
            return numpy_ops.GATED[activation](gate, up)
        return ACTIVATIONS[activation](gate) * up

    def attention(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        scale: float,
        cap: float | None,
        mask: Mask,
    ) -> mx.array:
        """See `Ops`."""
        large = queries.shape[0] * queries.shape[2] >= _WORTH_NUMPY
        if self.with_numpy and large and not isinstance(mask, str):
            return numpy_attention(queries, keys, values, scale, cap, mask)
        return super().attention(queries, keys, values, scale, cap, mask)

    def fuses(self, head_dim: int, length: int) -> bool:
        """Return True: MLX's fused attention is as fast, and numpy's softmax faster."""
        return True

    def reads_whole_buffers(self, head_dim: int) -> bool:
        """Return False: a CPU computes on the view itself."""
        return False

    def log_total(self, logits: mx.array) -> mx.array:
        """See `Ops`. Waits for the logits; numpy takes a fraction of the time."""
        return mx.array(numpy_ops.log_total(logits))

    def broken(self, logits: mx.array) -> mx.array:
        """See `Ops`. Waits for the logits; numpy takes a tenth of the time."""
        return mx.array(~np.isfinite(np.asarray(logits).max(axis=-1)))

    def settled(self, x: mx.array) -> mx.array:
        """Compute a product or norm at once in a lane; elsewhere lazily.

        MLX queues ahead of the computation, into new memory. In a lane, memory freed early is
        reused while it is in the core's cache: about 10% less time on Gemma.
        """
        if in_lane():
            mx.eval(x)
        return x

    def begin(self, arrays: Sequence[mx.array]) -> None:
        """Compute the arrays now: lanes need computed values, and memory is reused."""
        mx.eval(arrays)

    def before_layer(self, x: mx.array, check: Check) -> None:
        """See `Ops`. Later products use as many threads as there are free cores."""
        # numpy evaluates its inputs; without it, a large pass would only be queued by now.
        if not self.with_numpy and check is not never_stop and _is_large(x):
            mx.eval(x)
        check()
        if not in_lane():
            follow_load()


def numpy_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    cap: float | None,
    mask: mx.array | None,
) -> mx.array:
    """Return attention with softmax in `numpy_ops`: [B, heads, T, D].

    The queries that share keys are rows of one product.
    """
    batch, heads, length, dim = queries.shape
    kv_heads = keys.shape[1]
    grouped = (queries * scale).reshape(batch, kv_heads, -1, dim)  # [B, kv heads, group * T, D]

    scores = grouped @ keys.swapaxes(-1, -2)  # [B, kv heads, group * T, S]
    shares = numpy_ops.softmax(scores, mask, cap)
    return (shares @ values).reshape(batch, heads, length, dim)


def _is_large(x: mx.array) -> bool:
    """Return True if [B, T, H] has enough tokens for numpy to pay off."""
    return x.size >= _WORTH_NUMPY * x.shape[-1]
