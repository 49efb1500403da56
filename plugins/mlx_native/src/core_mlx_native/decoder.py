"""One decoder for every family: tokens in, hidden states out, and a head to read them with.

Shapes: B rows, T tokens, H hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlx.core as mx
from mlx import nn

from core_mlx_native import host_math
from core_mlx_native.attention import Attention, KeysValues, Past
from core_mlx_native.config import ModelConfig
from core_mlx_native.layers import Linear, Linears, RMSNorm, gated, matrix, softcap
from core_mlx_native.layout import norm_names
from core_mlx_native.rotation import Ends, Rotation, View
from core_mlx_native.weights import Weights

Between = Callable[[], None]

_WORTH_HOST = 64  # tokens of a pass from which numpy's calls cost less than MLX's arithmetic


def nothing() -> None:
    """Go on."""


class MLP(nn.Module):
    """Gated feed-forward: ``down(activation(gate(x)) * up(x))``."""

    def __init__(self, config: ModelConfig, weights: Weights, name: str) -> None:
        super().__init__()
        self.gate_up_proj = Linears(weights, [f"{name}.gate_proj", f"{name}.up_proj"])
        self.down_proj = Linear(weights, f"{name}.down_proj")
        self._activation = config.family.activation

    def __call__(self, x: mx.array, host: bool = False) -> mx.array:
        """``host``: the activation runs in `host_math`."""
        gate, up = self.gate_up_proj(x)
        if host:
            return self.down_proj(host_math.GATED[self._activation](gate, up))
        return self.down_proj(gated(self._activation, gate, up))


class Layer(nn.Module):
    """Attention and MLP, each behind a norm; Gemma puts a second norm behind each as well."""

    def __init__(
        self, config: ModelConfig, index: int, rotation: Rotation, weights: Weights
    ) -> None:
        super().__init__()
        name, kind = f"model.layers.{index}", config.layers[index]
        self.self_attn = Attention(config, kind, rotation, weights, f"{name}.self_attn")
        self.mlp = MLP(config, weights, f"{name}.mlp")
        for norm in norm_names(config):
            self[norm] = RMSNorm(weights, f"{name}.{norm}", config.rms_norm_eps)
        self._sandwich = config.family.sandwich_norms

    def __call__(
        self, x: mx.array, view: View, past: Past | None, ends: Ends | None = None
    ) -> tuple[mx.array, KeysValues]:
        """The tokens' hidden states, or those of the ``ends``; and all keys and values."""
        attended, cache = self.self_attn(self.input_layernorm(x), view, past, ends)
        if ends is not None:
            x = ends.of(x)
        if self._sandwich:
            x = x + self.post_attention_layernorm(attended, x.dtype)
            fed = self.mlp(self.pre_feedforward_layernorm(x), view.host)
            return x + self.post_feedforward_layernorm(fed, x.dtype), cache
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x), view.host), cache


class Decoder(nn.Module):
    """A causal language model, which takes every tensor that `layout` lists from ``weights``.

    ``host_math``: numpy computes activations and softmax, of passes that are large enough.
    """

    def __init__(self, config: ModelConfig, weights: Weights, host_math: bool = False) -> None:
        super().__init__()
        self.config, self.host_math = config, host_math
        self.embed_tokens = matrix(weights, "model.embed_tokens")  # [vocabulary, H]
        rotations = {rope: Rotation(rope) for rope in {kind.rope for kind in config.layers}}
        self.layers = [
            Layer(config, index, rotations[kind.rope], weights)
            for index, kind in enumerate(config.layers)
        ]
        self.norm = RMSNorm(weights, "model.norm", config.rms_norm_eps)
        if not config.tied_head:
            self.lm_head = Linear(weights, "lm_head")

    def __call__(
        self,
        tokens: mx.array,
        view: View,
        past: Sequence[Past] | None = None,
        ends: Ends | None = None,
        between: Between = nothing,
    ) -> tuple[mx.array, list[KeysValues]]:
        """Hidden states [B, T, H] behind the last layer, and each layer's keys and values.

        With ``ends``, [B, R, H]: the last layer runs for them alone. ``between`` two layers may
        raise: with `host_math` one has run by then, without they are only queued.
        """
        if self.host_math and tokens.size >= _WORTH_HOST:
            view, ends = view.on_host(), ends and ends.on_host()
        x = self.embed_tokens.rows(tokens) * self.config.embedding_scale  # [B, T, H]
        if self.config.family.overflows_float16 and x.dtype == mx.float16:
            x = x.astype(mx.float32)  # the sums of all layers pass 65504, each one's share does not
        cache: list[KeysValues] = []
        for index, layer in enumerate(self.layers):
            between()
            last = ends if index == len(self.layers) - 1 else None
            x, keys_values = layer(x, view, past[index] if past else None, last)
            cache.append(keys_values)
        return x, cache

    def logits(self, hidden: mx.array) -> mx.array:
        """Next-token logits, float32, for hidden states [..., H]: [..., vocabulary]."""
        head = self.embed_tokens.product if self.config.tied_head else self.lm_head
        return self._capped(head(self.norm(hidden)))

    def logits_of(self, hidden: mx.array, tokens: mx.array) -> mx.array:
        """The logits of ``tokens`` [K] alone: [..., K]. A head of that many rows."""
        head = self.embed_tokens if self.config.tied_head else self.lm_head.matrix
        logits = self.norm(hidden) @ head.rows(tokens).T
        if not self.config.tied_head and "bias" in self.lm_head:
            logits = logits + self.lm_head.bias[tokens]
        return self._capped(logits)

    def _capped(self, logits: mx.array) -> mx.array:
        wide, cap = logits.astype(mx.float32), self.config.logit_cap
        return wide if cap is None else softcap(wide, cap)

    @property
    def dtype(self) -> mx.Dtype:
        """What it computes in."""
        return self.norm.weight.dtype
