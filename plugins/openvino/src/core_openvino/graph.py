"""The graph of a decoder, built with OpenVINO's operations from a `ModelConfig` and its weights.

Attention is paged (vLLM, arXiv 2309.06180): tokens of many sequences run side by side without
padding, and each sequence lists the blocks of the KV cache that hold its keys and values.
Formulations are those that the CPU plugin's passes know: RMSNorm, RoPE and attention each become
one node, which `tests/test_graph.py` counts in the compiled graph.

Shapes: T tokens of all sequences, H hidden size, D head size, R rows that are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import openvino as ov
from openvino import opset13 as ops
from openvino.op import _PagedAttentionExtension as PagedAttention

from core_openvino import capped
from core_openvino.nodes import (
    cosines_name,
    integer,
    ints,
    named_input,
    named_output,
    number,
    product,
    rotated,
    sines_name,
    wide,
)
from core_openvino.weights import Weights
from core_runtime.checkpoint.config import LayerKind, ModelConfig
from core_runtime.checkpoint.rope import Rope

TOKENS, ROWS, HIDDEN, INNER, LOGITS = "tokens", "rows", "hidden", "inner", "logits"
BLOCKS = ("past_lens", "subsequence_begins", "block_indices", "block_indices_begins")
LONGEST = "max_context_len"


def keys_name(layer: int) -> str:
    """Return the name of the input with the key blocks of a layer."""
    return f"key_cache.{layer}"


def values_name(layer: int) -> str:
    """Return the name of the input with the value blocks of a layer."""
    return f"value_cache.{layer}"


def new_name(cache: str) -> str:
    """Return the name of the output with what the host stores in a cache: [T, kv heads, D]."""
    return f"new_{cache}"


def ropes(config: ModelConfig) -> list[Rope]:
    """Return the distinct RoPEs of the layers, in the order of the inputs with their angles."""
    return list(dict.fromkeys(kind.rope for kind in config.layers))


@dataclass(slots=True)
class _Body:
    """The inputs of a body, and the layers that are built from them."""

    config: ModelConfig
    weights: Weights
    inputs: dict[str, ov.Node] = field(default_factory=dict)
    outputs: dict[str, ov.Node] = field(default_factory=dict)

    def input(self, name: str, shape: Sequence[int], kind: ov.Type = ov.Type.i32) -> ov.Node:
        """Return the input of this name, which is made on its first use."""
        if name not in self.inputs:
            self.inputs[name] = named_input(name, shape, kind)
        return self.inputs[name]

    def norm(self, x: ov.Node, name: str) -> ov.Node:
        """Return RMSNorm over the last axis: ``x / sqrt(mean(x²) + eps) * weight``."""
        mean = ops.reduce_mean(ops.power(x, number(2.0)), ints(-1), keep_dims=True)
        scale = ops.divide(number(1.0), ops.sqrt(ops.add(mean, number(self.config.rms_norm_eps))))
        return ops.multiply(ops.multiply(x, scale), self.weights.vector(f"{name}.weight"))

    def linear(self, x: ov.Node, name: str) -> ov.Node:
        """Return ``x @ weight.T``, plus a bias if the checkpoint has one."""
        result = product(x, self.weights.matrix(f"{name}.weight"))
        if f"{name}.bias" not in self.weights.names:
            return result
        return ops.add(result, self.weights.vector(f"{name}.bias"))

    def attention(self, x: ov.Node, layer: int) -> ov.Node:
        """Return the output of a layer's attention: [T, H]."""
        config, kind = self.config, self.config.layers[layer]
        name = f"model.layers.{layer}.self_attn"
        queries = self._heads(x, f"{name}.q", config.num_heads, kind, rotated=True)
        keys = self._heads(x, f"{name}.k", config.num_kv_heads, kind, rotated=True)
        values = self._heads(x, f"{name}.v", config.num_kv_heads, kind, rotated=False)
        mix = self._paged if config.attention_cap is None else self._capped
        return self.linear(mix(queries, keys, values, layer), f"{name}.o_proj")

    def _heads(self, x: ov.Node, name: str, heads: int, kind: LayerKind, rotated: bool) -> ov.Node:
        """Return queries, keys or values: [T, heads * D]."""
        size = self.config.head_dim
        projected = self.linear(x, f"{name}_proj")  # [T, heads * D]
        if rotated:
            split = ops.reshape(projected, ints(-1, 1, heads, size), False)
            if self.config.family.qk_norm:
                split = self.norm(split, f"{name}_norm")
            turned = self._rotated(ops.transpose(split, ints(0, 2, 1, 3)), kind.rope)
            projected = ops.transpose(turned, ints(0, 2, 1, 3))
        return ops.reshape(projected, ints(-1, heads * size), False)

    def _rotated(self, x: ov.Node, rope: Rope) -> ov.Node:
        """Rotate [T, heads, 1, D]: ``x cos + (-b, a) sin`` for the halves a and b of D."""
        place = ropes(self.config).index(rope)
        angles = [-1, 1, 1, self.config.head_dim]
        cosines = self.input(cosines_name(place), angles, ov.Type.f32)
        sines = self.input(sines_name(place), angles, ov.Type.f32)
        return rotated(x, cosines, sines, self.config.head_dim)

    def _paged(self, queries: ov.Node, keys: ov.Node, values: ov.Node, layer: int) -> ov.Node:
        """Return attention over the cache and these tokens, [T, heads * D], and store the latter.

        The operation has no public constructor yet; its order of inputs is that of OpenVINO 2026.4
        (``paged_attention.cpp``). Unused features have empty inputs.
        """
        config = self.config
        blocks = [-1, -1, -1, -1]  # the plugin decides their shape and type
        cache = [
            self.input(keys_name(layer), blocks, ov.Type.dynamic),
            self.input(values_name(layer), blocks, ov.Type.dynamic),
        ]
        places = [self.input(name, [-1]) for name in BLOCKS]
        no_ints, no_floats = (ops.constant(np.zeros(0, kind)) for kind in (np.int32, np.float32))

        inputs = [queries, keys, values, *cache, *places]
        scale = max(config.attention_scale, float(np.finfo(np.float32).tiny))  # 0: the default one
        inputs += [number(scale), integer(config.layers[layer].window)]
        inputs += [no_floats, self.input(LONGEST, [])]  # alibi, the longest sequence
        inputs += [no_ints, no_ints, no_ints, no_floats]  # scores, rotation of blocks
        inputs += [no_floats, integer(0), integer(0)]  # sparse attention
        inputs += [ops.constant(np.zeros((0, 0, 0, 0), np.float32)), integer(0)]  # sinks, eviction
        inputs += [no_ints] * 4 + [ops.constant(np.zeros(0, np.uint8)), no_ints]

        attention = PagedAttention([node.output(0) for node in inputs])
        facts = {"num": config.num_kv_heads, "size": config.head_dim}
        for part in "kv":
            attention.get_rt_info()[f"num_{part}_heads"] = facts["num"]
            attention.get_rt_info()[f"{part}_head_size"] = facts["size"]
        return attention.output(0)

    def _capped(self, queries: ov.Node, keys: ov.Node, values: ov.Node, layer: int) -> ov.Node:
        """Return the same with capped scores; what is to be stored becomes outputs."""
        config, names = self.config, (keys_name(layer), values_name(layer))
        blocks = [-1, config.num_kv_heads, capped.WIDTH, config.head_dim]
        key_cache, value_cache = (self.input(name, blocks, self.weights.cached) for name in names)
        cached = capped.Cached(key_cache, value_cache, self.input(capped.BLOCKS, [-1]))
        mask = self.input(capped.mask_name(config.layers[layer].window), [-1, -1], ov.Type.f32)
        mixed = capped.attention(config, queries, keys, values, cached, mask)
        self.outputs |= zip(map(new_name, names), (mixed.keys, mixed.values), strict=True)
        return mixed.output

    def mlp(self, x: ov.Node, name: str) -> ov.Node:
        """Return ``down(activation(gate(x)) * up(x))``."""
        gate, up = self.linear(x, f"{name}.gate_proj"), self.linear(x, f"{name}.up_proj")
        if self.config.family.activation == "silu":
            return self.linear(ops.multiply(ops.swish(gate), up), f"{name}.down_proj")

        # Halved and doubled, both exact: this hides the formula from a pass that would fuse it into
        # a node (LLMMLP) which divides by zero on one thread, and copies the weights. Doubled after
        # the product instead, the weights would be doubled, and those of int8 become float32.
        halved = ops.multiply(ops.gelu(gate, "tanh"), number(0.5))
        doubled = ops.multiply(ops.multiply(halved, up), number(2.0))
        return self.linear(doubled, f"{name}.down_proj")

    def layer(self, x: ov.Node, layer: int) -> ov.Node:
        """Return the hidden states after a layer."""
        name = f"model.layers.{layer}"
        attended = self.attention(self.norm(x, f"{name}.input_layernorm"), layer)
        if not self.config.family.sandwich_norms:
            x = ops.add(x, attended)
            fed = self.mlp(self.norm(x, f"{name}.post_attention_layernorm"), f"{name}.mlp")
            return ops.add(x, fed)

        # Gemma has a second norm after each part.
        x = ops.add(x, self.norm(attended, f"{name}.post_attention_layernorm"))
        fed = self.mlp(self.norm(x, f"{name}.pre_feedforward_layernorm"), f"{name}.mlp")
        return ops.add(x, self.norm(fed, f"{name}.post_feedforward_layernorm"))


class Bodies(NamedTuple):
    """The graph of every pass, and one that also returns the states of all layers.

    The latter is a graph of its own, since its outputs make a pass 4 % longer. Both have the same
    constants.
    """

    plain: ov.Model
    inner: ov.Model


def body(config: ModelConfig, weights: Weights) -> Bodies:
    """Return the graphs from ``tokens`` to the states at ``rows``.

    ``hidden`` are the last layer's, after the last norm: [R, H]; ``inner`` are the inputs of all
    layers: [R, layers, H].
    """
    parts = _Body(config, weights)
    x = wide(weights.embedded(parts.input(TOKENS, [-1])))  # [T, H]
    if config.embedding_scale != 1.0:
        x = ops.multiply(x, number(config.embedding_scale))
    rows, inner = parts.input(ROWS, [-1]), list[ov.Node]()
    for layer in range(config.num_layers):
        inner.append(ops.unsqueeze(ops.gather(x, rows, ints(0)), ints(1)))
        x = parts.layer(x, layer)
    states = parts.norm(ops.gather(x, rows, ints(0)), "model.norm")
    parts.outputs[HIDDEN] = ops.convert(states, ov.Type.f32)

    inputs = list(parts.inputs.values())
    outputs = [named_output(node, name) for name, node in parts.outputs.items()]
    more = named_output(ops.convert(ops.concat(inner, 1), ov.Type.f32), INNER)
    return Bodies(ov.Model(outputs, inputs, HIDDEN), ov.Model([*outputs, more], inputs, INNER))


def head(config: ModelConfig, weights: Weights) -> ov.Model:
    """Return the graph from normed ``hidden`` states [R, H] to logits [R, vocabulary]."""
    states = named_input(HIDDEN, [-1, config.hidden_size], ov.Type.f32)
    logits = product(states, weights.head())
    if "lm_head.bias" in weights.names:
        logits = ops.add(logits, weights.vector("lm_head.bias"))
    if config.logit_cap is not None:
        cap = number(config.logit_cap)
        logits = ops.multiply(ops.tanh(ops.divide(logits, cap)), cap)
    return ov.Model([named_output(ops.convert(logits, ov.Type.f32), LOGITS)], [states], LOGITS)
