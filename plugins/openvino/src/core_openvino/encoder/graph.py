"""The graph of an encoder, from tokens to pooled states or to the logits of a head.

Texts are rows of equal length, padded on the right. Formulations are those that the CPU plugin's
passes know: attention and RoPE become one node each, which `tests/encoder/test_graph.py` counts.

Shapes: B rows, L tokens of the longest, H hidden size, D head size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import openvino as ov
from openvino import opset13 as ops

from core_openvino.encoder.config import EncoderConfig
from core_openvino.encoder.pipeline import Dense, Pipeline
from core_openvino.encoder.tensors import EncoderWeights
from core_openvino.nodes import (
    cosines_name,
    ints,
    named_input,
    named_output,
    number,
    product,
    rotated,
    sines_name,
    wide,
)

TOKENS, SEGMENTS, POSITIONS = "tokens", "segments", "positions"
MASK, NEAR, SHARES, DISTANCES = "mask", "near", "shares", "distances"
OUTPUT = "output"


def activated(x: ov.Node, name: str) -> ov.Node:
    """Return an activation of `config.ACTIVATIONS`, or the identity."""
    match name:
        case "gelu":
            return ops.gelu(x, "erf")
        case "gelu_tanh":
            return ops.gelu(x, "tanh")
        case "relu":
            return ops.relu(x)
        case "silu":
            return ops.swish(x)
        case "tanh":
            return ops.tanh(x)
    return x


@dataclass(slots=True)
class _Layers:
    """The inputs of a graph, and the parts that are built from them."""

    config: EncoderConfig
    weights: EncoderWeights
    inputs: dict[str, ov.Node] = field(default_factory=dict)

    def input(self, name: str, shape: Sequence[int], kind: ov.Type = ov.Type.f32) -> ov.Node:
        """Return the input of this name, which is made on its first use."""
        if name not in self.inputs:
            self.inputs[name] = named_input(name, shape, kind)
        return self.inputs[name]

    def norm(self, x: ov.Node, name: str) -> ov.Node:
        """Return LayerNorm over the last axis."""
        normed = ops.mvn(x, ints(-1), True, self.config.norm_eps, "inside_sqrt")
        scaled = ops.multiply(normed, self.weights.vector(f"{name}.weight"))
        if not self.config.biases[0]:
            return scaled
        return ops.add(scaled, self.weights.vector(f"{name}.bias"))

    def linear(self, x: ov.Node, name: str, bias: bool = True) -> ov.Node:
        """Return ``x @ weight.T``, plus a bias."""
        result = product(x, self.weights.matrix(f"{name}.weight"))
        return ops.add(result, self.weights.vector(f"{name}.bias")) if bias else result

    def embedded(self) -> ov.Node:
        """Return the normed embeddings: [B, L, H]."""
        config = self.config
        tokens = self.input(TOKENS, [-1, -1], ov.Type.i32)
        table = self.weights.table("embeddings.word_embeddings.weight")
        x = wide(ops.gather(table, tokens, ints(0)))
        if config.table:
            table = self.weights.table("embeddings.position_embeddings.weight")
            positions = self.input(POSITIONS, [-1], ov.Type.i32)
            x = ops.add(x, wide(ops.gather(table, positions, ints(0))))
        if config.segments:
            types = ops.constant(self.weights.plain("embeddings.token_type_embeddings.weight"))
            x = ops.add(x, ops.gather(types, self._segments(), ints(0)))
        if config.embedding_size != config.hidden_size:
            x = self.linear(x, "embeddings.embed_proj", bias=False)
        return self.norm(x, "embeddings.LayerNorm")

    def _segments(self) -> ov.Node:
        """Return which text of a pair each token belongs to; all to the first of one text."""
        if self.config.head is None:
            return ints(0)
        return self.input(SEGMENTS, [-1, -1], ov.Type.i32)

    def layer(self, x: ov.Node, index: int) -> ov.Node:
        """Return the states after a layer."""
        name = f"encoder.layer.{index}"
        _, attention, mlp = self.config.biases
        if self.config.family.modern:
            normed = self.norm(x, f"{name}.attn_norm") if index else x
            mixed = self.attention(normed, index)
            x = ops.add(x, self.linear(mixed, f"{name}.attention.output.dense", attention))
            both = self.linear(self.norm(x, f"{name}.mlp_norm"), f"{name}.intermediate.dense", mlp)
            size = self.config.intermediate_size
            inner, gate = ops.variadic_split(both, ints(2), ints(size, size)).outputs()
            gated = ops.multiply(activated(inner, self.config.activation), gate)
            return ops.add(x, self.linear(gated, f"{name}.output.dense", mlp))

        mixed = self.linear(self.attention(x, index), f"{name}.attention.output.dense")
        x = self.norm(ops.add(x, mixed), f"{name}.attention.output.LayerNorm")
        inner = activated(self.linear(x, f"{name}.intermediate.dense"), self.config.activation)
        fed = self.linear(inner, f"{name}.output.dense")
        return self.norm(ops.add(x, fed), f"{name}.output.LayerNorm")

    # -------------------------------------------------------------------------- attention

    def attention(self, x: ov.Node, index: int) -> ov.Node:
        """Return the mixed values of a layer: [B, L, H]."""
        config, name = self.config, f"encoder.layer.{index}.attention.self"
        if config.family.modern:
            size = config.hidden_size
            joined = self.linear(x, f"{name}.qkv", config.biases[1])
            parts = ops.variadic_split(joined, ints(2), ints(size, size, size)).outputs()
            queries, keys, values = (self._heads(part) for part in parts)
            local = bool(config.windows[index])
            queries, keys = (self._turned(part, local) for part in (queries, keys))
        else:
            queries, keys, values = (
                self._heads(self.linear(x, f"{name}.{part}")) for part in ("query", "key", "value")
            )
        mask, scale = self._mask(index), config.head_size**-0.5
        if config.distances is not None:
            parts_of_score = 1 + config.distances.content + config.distances.position
            scale = (config.head_size * parts_of_score) ** -0.5
            for score in self._distant(queries, keys, name):
                mask = ops.add(mask, ops.multiply(score, number(scale)))
        mixed = ops.scaled_dot_product_attention(queries, keys, values, mask, number(scale))
        merged = ops.transpose(mixed, ints(0, 2, 1, 3))
        return ops.reshape(merged, ints(0, 0, config.hidden_size), True)

    def _heads(self, x: ov.Node) -> ov.Node:
        """Return [B, L, H] by heads: [B, heads, L, D]."""
        split = ops.reshape(x, ints(0, 0, self.config.num_heads, self.config.head_size), True)
        return ops.transpose(split, ints(0, 2, 1, 3))

    def _turned(self, x: ov.Node, local: bool) -> ov.Node:
        angles = [1, 1, -1, self.config.head_size]
        cosines, sines = (
            self.input(name(int(local)), angles) for name in (cosines_name, sines_name)
        )
        return rotated(x, cosines, sines, self.config.head_size)

    def _mask(self, index: int) -> ov.Node:
        """Return what is added to scores: large negative numbers at padding and far tokens."""
        mask = self.input(MASK, [-1, 1, 1, -1])
        if self.config.windows[index]:
            return ops.add(mask, self.input(NEAR, [1, 1, -1, -1]))
        if self.config.model_type == "mpnet":
            table = ops.constant(self.weights.plain("encoder.relative_attention_bias.weight").T)
            by_head = ops.gather(table, self._between(), ints(1))  # [heads, 1, L, L]
            return ops.add(mask, ops.transpose(by_head, ints(1, 0, 2, 3)))
        return mask

    def _between(self) -> ov.Node:
        """Return the rows of the table of distances, for each pair of tokens: [1, L, L]."""
        return self.input(DISTANCES, [1, -1, -1], ov.Type.i32)

    def _distant(self, queries: ov.Node, keys: ov.Node, name: str) -> list[ov.Node]:
        """Return DeBERTa's scores of content with distances: [B, heads, L, L]."""
        distances = self.config.distances
        assert distances is not None
        table = ops.constant(self.weights.plain("encoder.rel_embeddings.weight")[None])
        table = self.norm(table, "encoder.LayerNorm") if distances.normed else table
        scores = []
        if distances.content:
            part = "key" if distances.shared else "pos_key"
            rows = self._heads(self.linear(table, f"{name}.{part}"))
            scores.append(self._looked_up(queries, rows))
        if distances.position:
            part = "query" if distances.shared else "pos_query"
            rows = self._heads(self.linear(table, f"{name}.{part}"))
            looked_up = self._looked_up(keys, rows, turned=True)
            scores.append(ops.transpose(looked_up, ints(0, 1, 3, 2)))
        return scores

    def _looked_up(self, x: ov.Node, rows: ov.Node, turned: bool = False) -> ov.Node:
        """Return the products of tokens with the rows of their distances: [B, heads, L, L]."""
        products = ops.matmul(x, rows, False, True)  # [B, heads, L, 2 span]
        places = ops.unsqueeze(self._between(), ints(1))
        if turned:
            places = ops.transpose(places, ints(0, 1, 3, 2))
        shape = ops.shape_of(x)
        first = ops.gather(shape, ints(0, 1, 2), ints(0))
        last = ops.gather(shape, ints(2), ints(0))
        whole = ops.broadcast(places, ops.concat([first, last], 0))
        return ops.gather_elements(products, whole, 3)

    # ----------------------------------------------------------------------------- results

    def pooled(self, x: ov.Node, pipeline: Pipeline) -> ov.Node:
        """Return the embedding of each row: [B, H], before its norm."""
        modes, hidden = pipeline.pooling, self.config.hidden_size
        if modes == ("max",):
            return ops.squeeze(self._largest(x), ints(1))
        rows = ops.matmul(self.input(SHARES, [-1, len(modes), -1]), x, False, False)
        if "max" in modes:
            parts = [
                self._largest(x) if mode == "max" else ops.gather(rows, ints(place), ints(1))
                for place, mode in enumerate(modes)
            ]
            rows = ops.concat(parts, 1)
        return ops.reshape(rows, ints(-1, len(modes) * hidden), False)

    def _largest(self, x: ov.Node) -> ov.Node:
        """Return the largest value of each place in a state: [B, 1, H]."""
        mask = ops.squeeze(self.input(MASK, [-1, 1, 1, -1]), ints(1))  # [B, 1, L]
        return ops.reduce_max(
            ops.add(x, ops.transpose(mask, ints(0, 2, 1))), ints(1), keep_dims=True
        )

    def classified(self, x: ov.Node) -> ov.Node:
        """Return the logits of the head: [B, outputs]."""
        head, names = self.config.head, self.config.family.head
        assert head is not None
        shares = self.input(SHARES, [-1, 1, -1])
        first = ops.reshape(
            ops.matmul(shares, x, False, False), ints(-1, self.config.hidden_size), False
        )
        inner = activated(self.linear(first, names.dense, head.bias), head.activation)
        inner = self.norm(inner, names.norm) if names.norm else inner
        return self.linear(inner, names.last)


def dense(x: ov.Node, layer: Dense) -> ov.Node:
    """Return a Dense module's output; its weights stay in float32."""
    result = product(x, ops.constant(layer.weight))
    if layer.bias is not None:
        result = ops.add(result, ops.constant(layer.bias))
    return activated(result, layer.activation)


def encoder(config: EncoderConfig, weights: EncoderWeights, pipeline: Pipeline) -> ov.Model:
    """Return the graph whose ``output`` are embeddings, before their norm, or a head's logits."""
    layers = _Layers(config, weights)
    x = layers.embedded()
    for index in range(config.num_layers):
        x = layers.layer(x, index)
    if config.family.modern:
        x = layers.norm(x, "final_norm")
    if config.head is not None:
        result = layers.classified(x)
    else:
        result = layers.pooled(x, pipeline)
        for layer in pipeline.dense:
            result = dense(result, layer)
    output = named_output(ops.convert(result, ov.Type.f32), OUTPUT)
    return ov.Model([output], list(layers.inputs.values()), OUTPUT)
