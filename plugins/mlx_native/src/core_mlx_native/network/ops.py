"""The operations that differ by device, chosen at load.

`Ops` uses MLX's operations, for a GPU; `core_mlx_native.cpu.ops.CpuOps` is for a CPU. The decoder
and its parts are independent of the device.

Shapes: B rows, T tokens, D head size, S visible positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import mlx.core as mx
from mlx import nn

from core.kit.base import Check
from core_mlx_native.chosen import CUDNN_HEAD
from core_mlx_native.network.rotary import View
from core_mlx_native.network.values import KeysValues, LMHead, Mask, Matrix, Past
from core_mlx_native.sampling.sampling import log_total
from core_runtime.checkpoint.config import LayerKind, ModelConfig


class ShortLayer(Protocol):
    """A layer for short passes; see `Ops.short_layer`."""

    def __call__(self, x: mx.array, view: View, past: Past | None) -> tuple[mx.array, KeysValues]:
        """Return the hidden states of all tokens, and all keys and values."""
        ...


class Ops:
    """The operations of MLX itself: fused kernels and lazy evaluation."""

    has_causal_kernel = True  # attention accepts the mask "causal" by name
    has_rope_kernel = True  # otherwise angles are computed once for all layers
    samples_by_mass = True  # a GPU always sorts everything; a CPU sorts constant rows quickly
    head_floats = 2**25  # per product of the LM head: ten in flight, and a copy, are 2 GB
    lays_out_wide = False  # see `laid_out`

    def laid_out(self, weight: mx.array) -> mx.array:
        """Return a weight [rows, columns] in the layout of its products: [columns, rows]."""
        return weight.T

    def tied_head(self, embedding: Matrix) -> Matrix:
        """Return an embedding that is also the LM head, in this device's layout."""
        return embedding

    def short_layer(
        self, layer: nn.Module, config: ModelConfig, kind: LayerKind
    ) -> ShortLayer | None:
        """Return a faster equivalent of a layer for short passes, or None."""
        return None

    def is_short(self, x: mx.array) -> bool:
        """Return True if [B, T, H] is a short pass, for `short_layer`."""
        return False

    def gated(self, activation: str, gate: mx.array, up: mx.array) -> mx.array:
        """Return ``activation(gate) * up``, of any shape; ``gate`` may be overwritten.

        It is one kernel, because ten over the full width of the MLP would take as long as the
        matrix products.
        """
        return _fused(activation)(gate, up)

    def attention(
        self,
        queries: mx.array,
        keys: mx.array,
        values: mx.array,
        scale: float,
        cap: float | None,
        mask: Mask,
    ) -> mx.array:
        """Return ``softmax(softcap(scale * queries @ keys.T) + mask) @ values``: [B, heads, T, D].

        ``queries`` are [B, heads, T, D], ``keys`` and ``values`` [B, kv heads, S, D], an additive
        ``mask`` is broadcastable to [B, heads, T, S]. A ``cap`` and a mask by name exclude each
        other.
        """
        if cap is not None and not isinstance(mask, str):
            return capped_attention(queries, keys, values, scale, cap, mask)
        if self.fuses(queries.shape[-1], queries.shape[2]) or isinstance(mask, str):
            return mx.fast.scaled_dot_product_attention(
                queries, keys, values, scale=scale, mask=mask
            )
        return grouped_attention(queries, keys, values, scale, mask)

    def fuses(self, head_dim: int, length: int) -> bool:
        """Return True if attention is one kernel, for ``length`` queries per row.

        MLX's CUDA kernels support heads up to 128. Larger ones, such as Gemma's 256, use its
        unfused attention there, and on Metal when that is faster: for more than 8 queries, and less
        than the 1,024 from which the newest chips have a kernel (``use_fallback`` in MLX's Metal
        code).
        """
        return head_dim <= CUDNN_HEAD or (mx.metal.is_available() and not 8 < length < 1024)

    def reads_whole_buffers(self, head_dim: int) -> bool:
        """Return True if attention without a mask treats a view as the start of its buffer.

        MLX's CUDA kernel for one query per row goes back from such a view to the complete buffer,
        by a wrong offset unless the view starts with it (`unslice_kv`, ml-explore/mlx#3113), and
        reads another row's keys or memory outside. It is cuDNN's kernel, for head sizes up to 128,
        and runs only without a mask.
        """
        return head_dim <= CUDNN_HEAD and not mx.metal.is_available()

    def log_total(self, logits: mx.array) -> mx.array:
        """Return the logarithm of the sum of exponentials over the last axis: [...], from [..., V].

        NaN for `broken` logits.
        """
        return log_total(logits)

    def broken(self, logits: mx.array) -> mx.array:
        """Return where logits [..., V] are invalid: bool [...].

        Invalid logits contain NaN or +infinity, or only -infinity, the logit of an impossible
        token. The maximum shows it: MLX's maximum is NaN if any value is, on all devices.
        """
        return ~mx.isfinite(logits.max(axis=-1))

    def token_losses(self, head: LMHead, hidden: mx.array, targets: mx.array) -> mx.array:
        """Return ``-log softmax(logits)[target]``: float32 [N].

        ``hidden`` [N, H] are the hidden states, ``targets`` [N] the tokens.
        """
        logits = head.logits(hidden)
        chosen = mx.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        return mx.logsumexp(logits, axis=-1) - chosen

    def settled(self, x: mx.array) -> mx.array:
        """Return a product or norm; a device that reuses memory better computes it at once."""
        return x

    def begin(self, arrays: Sequence[mx.array]) -> None:
        """Start to compute arrays before later work is queued, without waiting.

        They are shared by later passes, or their inputs are so large that they must be freed soon.
        MLX has at most ten graphs in flight, with all their inputs; then queueing waits for the
        oldest.
        """
        mx.async_eval(arrays)

    def before_layer(self, x: mx.array, check: Check) -> None:
        """Call the check between two layers, after the work so far; it may raise.

        ``x`` [B, T, H] is the next layer's input. On a GPU earlier layers are queued, not computed.
        """
        check()


def grouped_attention(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None
) -> mx.array:
    """Return attention from plain products: [B, heads, T, D]; softmax is in float32.

    The queries that share keys are rows of one product, [B * kv heads, group * T, D]: MLX's version
    has one batch per query head, which cuBLAS cannot combine, and rebuilds its mask in every layer.
    """
    batch, heads, length, dim = queries.shape
    kv_heads, size = keys.shape[1:3]
    grouped = (queries * scale).reshape(batch * kv_heads, -1, dim)
    scores = grouped @ keys.reshape(-1, size, dim).swapaxes(-1, -2)  # [B * kv heads, group * T, S]

    if mask is not None:  # shared by all heads of a row
        grouped_scores = scores.reshape(batch, kv_heads, -1, length, size)
        scores = (grouped_scores + mask[:, :, None]).reshape(scores.shape)
    shares = mx.softmax(scores, axis=-1, precise=True)
    return (shares @ values.reshape(-1, size, dim)).reshape(batch, heads, length, dim)


def capped_attention(
    queries: mx.array,
    keys: mx.array,
    values: mx.array,
    scale: float,
    cap: float,
    mask: mx.array | None,
) -> mx.array:
    """Return attention with scores softly capped before the mask: [B, heads, T, D].

    MLX's fused attention has no cap. Scores are capped and normalised in float32.
    """
    batch, heads, length, dim = queries.shape
    kv_heads = keys.shape[1]

    # Query heads that share a key head are adjacent.
    grouped = (queries * scale).reshape(batch, kv_heads, heads // kv_heads, length, dim)
    scores = grouped @ keys[:, :, None].swapaxes(-1, -2)  # [B, kv heads, group, T, S]

    scores = softcap(widened(scores), cap)
    if mask is not None:
        scores = scores + mask[:, :, None]

    shares = mx.softmax(scores, axis=-1).astype(values.dtype)
    return (shares @ values[:, :, None]).reshape(batch, heads, length, dim)


def widened(x: mx.array) -> mx.array:
    """Return an array in float32, or unchanged in float64."""
    return x if x.dtype == mx.float64 else x.astype(mx.float32)


def silu(x: mx.array) -> mx.array:
    """Return ``x * sigmoid(x)``."""
    return x * mx.sigmoid(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """Return the tanh approximation of GELU (arXiv 1606.08415).

    PyTorch's ``approximate="tanh"``.
    """
    return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def softcap(x: mx.array, cap: float) -> mx.array:
    """Softly limit to ±cap (arXiv 2408.00118, section 2)."""
    return mx.tanh(x / cap) * cap


@cache
def _fused(activation: str) -> Callable[[mx.array, mx.array], mx.array]:
    function = ACTIVATIONS[activation]
    return mx.compile(lambda gate, up: function(gate) * up, shapeless=True)
