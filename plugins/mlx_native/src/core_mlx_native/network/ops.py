"""The operations that devices do differently: one answer to "which device?", chosen at load.

`Ops` is MLX's own way, which suits a GPU; `core_mlx_native.cpu.ops.CpuOps` is that of a CPU. The
decoder and its parts hold one of them, and neither know nor ask where they run.

Shapes: B rows, T tokens, D head size, S positions that are looked at, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal, Protocol

import mlx.core as mx

from core.clock import Check
from core_mlx_native.chosen import CUDNN_HEAD
from core_mlx_native.sampling.sampling import log_total

if TYPE_CHECKING:
    from core_mlx_native.checkpoint.config import LayerKind, ModelConfig
    from core_mlx_native.network.attention import KeysValues, Past
    from core_mlx_native.network.decoder import Decoder, Layer
    from core_mlx_native.network.layers import Matrix
    from core_mlx_native.network.rotation import View

Mask = mx.array | Literal["causal"] | None


class ShortLayer(Protocol):
    """A layer for short passes; see `Ops.short_layer`."""

    def __call__(self, x: mx.array, view: View, past: Past | None) -> tuple[mx.array, KeysValues]:
        """Return the hidden states of all tokens, and all keys and values."""
        ...


class Ops:
    """The operations of MLX itself: fused kernels, and nothing is computed before it is needed."""

    has_causal_kernel = True  # attention takes the mask "causal" by its name
    has_rope_kernel = True  # or the angles are made once for all layers
    samples_by_mass = True  # a GPU sorts all it is given; a CPU's sort is quick where rows are done
    head_floats = 2**25  # of one product of the head: ten in flight, and a copy, are 2 GB
    lays_out_wide = False  # see `laid_out`

    def laid_out(self, weight: mx.array) -> mx.array:
        """Return a weight [rows, columns] as its products read it: [columns, rows]."""
        return weight.T

    def tied_head(self, embedding: Matrix) -> Matrix:
        """Return an embedding that is the head as well, as this device reads it."""
        return embedding

    def short_layer(self, layer: Layer, config: ModelConfig, kind: LayerKind) -> ShortLayer | None:
        """Return what computes the same as a layer in short passes; None for the layer itself."""
        return None

    def is_short(self, x: mx.array) -> bool:
        """True if [B, T, H] is a short pass, which `short_layer` is for."""
        return False

    def gated(self, activation: str, gate: mx.array, up: mx.array) -> mx.array:
        """``activation(gate) * up``, of any shape; ``gate`` is given up.

        One kernel: ten, each over the whole width of the MLP, move as many bytes as would take
        the time of the matrix products.
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
        """``softmax(softcap(scale * queries @ keys.T) + mask) @ values``: [B, heads, T, D].

        ``queries`` are [B, heads, T, D], ``keys`` and ``values`` [B, kv heads, S, D], an additive
        ``mask`` is broadcastable to [B, heads, T, S]. A ``cap`` and a mask by name exclude one
        another.
        """
        if cap is not None and not isinstance(mask, str):
            return capped_attention(queries, keys, values, scale, cap, mask)
        if self.fuses(queries.shape[-1], queries.shape[2]) or isinstance(mask, str):
            return mx.fast.scaled_dot_product_attention(
                queries, keys, values, scale=scale, mask=mask
            )
        return grouped_attention(queries, keys, values, scale, mask)

    def fuses(self, head_dim: int, length: int) -> bool:
        """True if one kernel attends, for ``length`` queries a row.

        MLX's CUDA kernels take heads up to 128. Larger ones, Gemma's 256, go through its plain
        attention there, and on Metal where that is faster: for more than 8 queries, and less than
        the 1,024 from which the newest chips have a kernel (``use_fallback`` in MLX's Metal part).
        """
        return head_dim <= CUDNN_HEAD or (mx.metal.is_available() and not 8 < length < 1024)

    def reads_whole_buffers(self, head_dim: int) -> bool:
        """True if attention without a mask takes a view of a buffer for its beginning.

        MLX's CUDA kernel for one query a row goes back from such a view to the whole buffer, by a
        wrong distance unless the view begins with it (`unslice_kv`, ml-explore/mlx#3113): another
        row's keys, or memory outside. It is cuDNN's, whose heads have at most 128 numbers, and
        runs only where no mask is given.
        """
        return head_dim <= CUDNN_HEAD and not mx.metal.is_available()

    def log_total(self, logits: mx.array) -> mx.array:
        """Return the logarithm of the sum of exponentials over the last axis: [...], from [..., V].

        NaN for `broken` logits.
        """
        return log_total(logits)

    def broken(self, logits: mx.array) -> mx.array:
        """Return where logits [..., V] are no distribution: bool [...].

        They hold NaN or +infinity, or nothing but -infinity, which is the logit of an impossible
        token. The maximum tells: that of MLX, on all of its devices, is NaN where there is one.
        """
        return ~mx.isfinite(logits.max(axis=-1))

    def token_losses(self, decoder: Decoder, hidden: mx.array, targets: mx.array) -> mx.array:
        """``-log softmax(logits)[target]`` of hidden states [N, H] and targets [N]: float32 [N]."""
        logits = decoder.logits(hidden)
        chosen = mx.take_along_axis(logits, targets[:, None], axis=-1)[:, 0]
        return mx.logsumexp(logits, axis=-1) - chosen

    def settled(self, x: mx.array) -> mx.array:
        """Return a product or a norm; a device where memory is better reused computes it first."""
        return x

    def begin(self, arrays: Sequence[mx.array]) -> None:
        """Begin to compute arrays before what is queued behind them, and wait for nothing.

        They are shared by later passes, or made of so much that it has to go soon. MLX has ten
        graphs in flight at most, each with what it holds; then queueing waits for the oldest.
        """
        mx.async_eval(arrays)

    def before_layer(self, x: mx.array, check: Check) -> None:
        """Call the check between two layers, where what was computed so far ends: it may raise.

        ``x`` [B, T, H] enters the layer. On a GPU the layers before are queued, not computed.
        """
        check()


def grouped_attention(
    queries: mx.array, keys: mx.array, values: mx.array, scale: float, mask: mx.array | None
) -> mx.array:
    """Attention of plain products: [B, heads, T, D]; softmax is computed in float32.

    The queries that share keys are rows of one product, [B * kv heads, group * T, D]: MLX's own
    has a batch for each query head, which cuBLAS cannot take as one, and makes its mask anew in
    every layer.
    """
    batch, heads, length, dim = queries.shape
    kv_heads, size = keys.shape[1:3]
    grouped = (queries * scale).reshape(batch * kv_heads, -1, dim)
    scores = grouped @ keys.reshape(-1, size, dim).swapaxes(-1, -2)  # [B * kv heads, group * T, S]

    if mask is not None:  # all heads of a row share it
        each = scores.reshape(batch, kv_heads, -1, length, size)
        scores = (each + mask[:, :, None]).reshape(scores.shape)
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
    """Attention whose scores are softly capped before the mask: [B, heads, T, D].

    MLX's fused attention has no cap. Scores are capped and normalised in float32.
    """
    batch, heads, length, dim = queries.shape
    kv_heads = keys.shape[1]

    # Query heads that share a key head stand beside one another.
    grouped = (queries * scale).reshape(batch, kv_heads, heads // kv_heads, length, dim)
    scores = grouped @ keys[:, :, None].swapaxes(-1, -2)  # [B, kv heads, group, T, S]

    scores = softcap(widened(scores), cap)
    if mask is not None:
        scores = scores + mask[:, :, None]

    shares = mx.softmax(scores, axis=-1).astype(values.dtype)
    return (shares @ values[:, :, None]).reshape(batch, heads, length, dim)


def widened(x: mx.array) -> mx.array:
    """An array in float32, or in float64 where it is."""
    return x if x.dtype == mx.float64 else x.astype(mx.float32)


def silu(x: mx.array) -> mx.array:
    """x * sigmoid(x)."""
    return x * mx.sigmoid(x)


def gelu_tanh(x: mx.array) -> mx.array:
    """The tanh approximation of GELU (arXiv 1606.08415): PyTorch's ``approximate="tanh"``."""
    return 0.5 * x * (1 + mx.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def softcap(x: mx.array, cap: float) -> mx.array:
    """Bound softly to ±cap (arXiv 2408.00118, section 2)."""
    return mx.tanh(x / cap) * cap


@cache
def _fused(activation: str) -> Callable[[mx.array, mx.array], mx.array]:
    function = ACTIVATIONS[activation]
    return mx.compile(lambda gate, up: function(gate) * up, shapeless=True)
