"""A decoder of the Llama kind in numpy, in float64: what one layer after the other should compute.

For sizes that the stored reference logits do not have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from core_runtime.checkpoint.arrays import SafetensorArrays
from core_runtime.checkpoint.config import ModelConfig, load_config

Floats = npt.NDArray[np.float64]


class DenseDecoder:
    """Llama, Mistral, Qwen 2 and Qwen 3, without a cache."""

    def __init__(self, directory: Path) -> None:
        self.config: ModelConfig = load_config(directory)
        self._tensors = SafetensorArrays(directory, self.config)

    def last_logits(self, prompt: Sequence[int]) -> Floats:
        """Return the logits after the last token."""
        x = self._take("model.embed_tokens.weight")[list(prompt)]
        for layer in range(self.config.num_layers):
            name = f"model.layers.{layer}"
            x = x + self._attention(self._norm(x, f"{name}.input_layernorm"), layer)
            fed = self._norm(x, f"{name}.post_attention_layernorm")
            gate, up = (self._linear(fed, f"{name}.mlp.{part}_proj") for part in ("gate", "up"))
            x = x + self._linear(gate / (1 + np.exp(-gate)) * up, f"{name}.mlp.down_proj")
        head = "model.embed_tokens" if self.config.tied_head else "lm_head"
        logits: Floats = self._linear(self._norm(x, "model.norm"), head)[-1]
        return logits

    def _attention(self, x: Floats, layer: int) -> Floats:
        config, kind = self.config, self.config.layers[layer]
        name, length = f"model.layers.{layer}.self_attn", len(x)
        queries, keys, values = (
            self._linear(x, f"{name}.{part}_proj").reshape(length, -1, config.head_dim)
            for part in "qkv"
        )
        if config.family.qk_norm:
            queries, keys = (
                self._norm(part, f"{name}.{letter}_norm")
                for part, letter in ((queries, "q"), (keys, "k"))
            )
        periods = np.array(kind.rope.periods, np.float64)
        angles = np.arange(length)[:, None, None] / np.concatenate([periods, periods])
        queries, keys = (_rotated(part, angles) for part in (queries, keys))

        group = config.num_heads // config.num_kv_heads
        keys, values = (part.repeat(group, axis=1) for part in (keys, values))
        scores = np.einsum("qhd,khd->hqk", queries, keys) * config.attention_scale
        distances = np.arange(length)[:, None] - np.arange(length)
        hidden = (distances < 0) | ((distances >= kind.window) if kind.window else False)
        scores = np.where(hidden, -np.inf, scores)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", weights, values).reshape(length, -1)
        return self._linear(mixed, f"{name}.o_proj")

    def _linear(self, x: Floats, name: str) -> Floats:
        product: Floats = x @ self._take(f"{name}.weight").T
        bias = f"{name}.bias"
        return product + self._take(bias) if bias in self._tensors.shapes else product

    def _norm(self, x: Floats, name: str) -> Floats:
        mean = (x**2).mean(axis=-1, keepdims=True)
        scaled: Floats = x / np.sqrt(mean + self.config.rms_norm_eps)
        return scaled * self._take(f"{name}.weight")

    def _take(self, name: str) -> Floats:
        return self._tensors.take(name).astype(np.float64)


def _rotated(x: Floats, angles: Floats) -> Floats:
    first, second = np.split(x, 2, axis=-1)
    turned = np.concatenate([-second, first], axis=-1)
    rotated: Floats = x * np.cos(angles) + turned * np.sin(angles)
    return rotated
