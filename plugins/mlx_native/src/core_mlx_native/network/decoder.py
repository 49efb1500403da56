"""One decoder for all families: tokens in, hidden states out, and an LM head for logits.

Shapes: B rows, T tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
from mlx import nn

from core.kit.base import Check, never_stop
from core_mlx_native.checkpoint.weights import Weights
from core_mlx_native.network.attention import Attention
from core_mlx_native.network.layers import Linear, Linears, RMSNorm, matrix
from core_mlx_native.network.ops import Ops, ShortLayer, softcap, widened
from core_mlx_native.network.rotary import Ends, RotaryEmbedding, View
from core_mlx_native.network.values import KeysValues, Matrix, Past
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.checkpoint.tensors import norm_names

Look = Callable[[int, mx.array], None]


def _ignored(index: int, x: mx.array) -> None:
    """Ignore the input."""


class MLP(nn.Module):
    """Gated feed-forward: ``down(activation(gate(x)) * up(x))``."""

    def __init__(self, config: ModelConfig, weights: Weights, name: str, ops: Ops) -> None:
        super().__init__()
        names = [f"{name}.gate_proj", f"{name}.up_proj"]
        self.gate_up_proj = Linears(weights, names, ops, together=False)  # `Ops.gated` takes pieces
        self.down_proj = Linear(weights, f"{name}.down_proj", ops)
        self._activation, self._ops = config.family.activation, ops

    def __call__(self, x: mx.array) -> mx.array:
        gate, up = self.gate_up_proj(x)
        return self.down_proj(self._ops.gated(self._activation, gate, up))


class Layer(nn.Module):
    """Attention and MLP, each after a norm; Gemma has a second norm after each as well."""

    def __init__(
        self, config: ModelConfig, index: int, rotary: RotaryEmbedding, weights: Weights, ops: Ops
    ) -> None:
        super().__init__()
        name, kind = f"model.layers.{index}", config.layers[index]
        self.self_attn = Attention(config, kind, rotary, weights, f"{name}.self_attn", ops)
        self.mlp = MLP(config, weights, f"{name}.mlp", ops)
        for norm in norm_names(config):
            self[norm] = RMSNorm(weights, f"{name}.{norm}", config.rms_norm_eps, ops)
        self._sandwich, self._ops = config.family.sandwich_norms, ops
        self._config, self._kind = config, kind
        self.shorten()

    def shorten(self, *, short: bool = True) -> None:
        """Build the layer's fast version for short passes, or remove it."""
        short_layer = self._ops.short_layer(self, self._config, self._kind) if short else None
        self._short: ShortLayer | None = short_layer

    def __call__(
        self, x: mx.array, view: View, past: Past | None, ends: Ends | None = None
    ) -> tuple[mx.array, KeysValues]:
        """Return the hidden states of all tokens, or of the ``ends``, and all keys and values."""
        if self._short is not None and ends is None and self._ops.is_short(x):
            return self._short(x, view, past)

        attended, cache = self.self_attn(self.input_layernorm(x), view, past, ends)
        if ends is not None:
            x = ends.of(x)

        # A second norm after each part, for Gemma.
        if self._sandwich:
            x = x + self.post_attention_layernorm(attended, x.dtype)
            fed = self.mlp(self.pre_feedforward_layernorm(x))
            return x + self.post_feedforward_layernorm(fed, x.dtype), cache

        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), cache


class Decoder(nn.Module):
    """A causal language model, which takes every tensor that `tensors` lists from ``weights``.

    ``ops`` are the operations of its device.
    """

    def __init__(self, config: ModelConfig, weights: Weights, ops: Ops) -> None:
        super().__init__()
        self.config, self.ops = config, ops
        self.embed_tokens: Matrix = matrix(weights, "model.embed_tokens")  # [vocabulary, H]
        self._embedding_scale = config.embedding_scale
        if (
            "lm_head.weight" in weights.names
        ):  # before the layers: laying it out needs its memory again
            self.lm_head = Linear(weights, "lm_head", ops)
        else:
            self.embed_tokens = ops.tied_head(self.embed_tokens)

        # Layers with the same RoPE share its angles.
        ropes = {kind.rope for kind in config.layers}
        embeddings = {rope: RotaryEmbedding(rope, ops.has_rope_kernel) for rope in ropes}
        self.layers = [
            Layer(config, index, embeddings[kind.rope], weights, ops)
            for index, kind in enumerate(config.layers)
        ]

        self.norm = RMSNorm(weights, "model.norm", config.rms_norm_eps, ops)

    def __call__(
        self,
        tokens: mx.array,
        view: View,
        past: Sequence[Past] | None = None,
        ends: Ends | None = None,
        between: Check = never_stop,
        look: Look = _ignored,
        depth: int | None = None,
    ) -> tuple[mx.array, list[KeysValues]]:
        """Return hidden states [B, T, H] after the last layer, and each layer's keys and values.

        With ``ends``, [B, R, H]: the last layer runs only for them. ``between`` is called between
        layers and may raise: on a CPU the previous layer has run by then, if the pass is large; on
        a GPU layers are only queued. ``look`` receives each layer's index and input; ``depth``:
        only this many first layers run.
        """
        x = self.embedded(tokens)
        cache: list[KeysValues] = []
        layers = self.layers if depth is None else self.layers[:depth]
        for index, layer in enumerate(layers):
            self.ops.before_layer(x, between)
            look(index, x)
            last = ends if index == len(layers) - 1 else None
            x, keys_values = layer(x, view, past[index] if past else None, last)
            cache.append(keys_values)
        return x, cache

    def embedded(self, tokens: mx.array) -> mx.array:
        """Return the input of the first layer: [B, T, H]."""
        x = self.embed_tokens.rows(tokens) * self._embedding_scale
        if self.config.family.overflows_float16 and x.dtype == mx.float16:
            x = x.astype(
                mx.float32
            )  # the sums of all layers exceed 65504, each one's share does not
        return x

    def logits(self, hidden: mx.array) -> mx.array:
        """Return next-token logits, float32, for hidden states [..., H]: [..., vocabulary]."""
        product = self.lm_head if "lm_head" in self else self.embed_tokens.product
        return self._capped(product(self.norm(hidden)))

    def logits_of(self, hidden: mx.array, tokens: mx.array) -> mx.array:
        """Return only the logits of ``tokens`` [K], from K rows of the LM head: [..., K]."""
        logits = self.norm(hidden) @ self.head_matrix.rows(tokens).T
        if (bias := self.head_bias) is not None:
            logits = logits + bias[tokens]
        return self._capped(logits)

    def _capped(self, logits: mx.array) -> mx.array:
        wide, cap = widened(logits), self.config.logit_cap
        return wide if cap is None else softcap(wide, cap)

    @property
    def head_matrix(self) -> Matrix:
        """The LM head's weight [vocabulary, H]; the embedding where they are tied."""
        return self.lm_head.matrix if "lm_head" in self else self.embed_tokens

    @property
    def head_bias(self) -> mx.array | None:
        """The LM head's bias [vocabulary], if it has one."""
        return self.lm_head.bias if "lm_head" in self and "bias" in self.lm_head else None

    @property
    def head_rows(self) -> int:
        """The maximum number of hidden states per LM head product."""
        return max(1, self.ops.head_floats // self.config.vocab_size)

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the computation."""
        return self.norm.weight.dtype
