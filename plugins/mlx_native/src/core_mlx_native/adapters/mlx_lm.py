"""Adapters in mlx-lm's layout: ``adapters.safetensors`` next to ``adapter_config.json``.

Read from mlx_lm/tuner/utils.py (``load_adapters``, ``linear_to_lora_layers``) of mlx-lm 0.32.2: A
is stored as [in, rank] and B as [rank, out], one rank and one scale hold for all layers, and
``num_layers`` counts from the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from core.errors import UnsupportedModelError
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.adapters.mlx_lm_keys import check_mlx_lm, check_parameters
from core_runtime.checkpoint.fields import ConfigFields

NAME = "mlx-lm"
WEIGHTS = "adapters.safetensors"
TRANSPOSED = False  # A is [in, rank], as `LowRank` holds it
PARTS = {"lora_a": "a", "lora_b": "b", "m": "magnitude"}

Said = Callable[[str], tuple[int, float]]
Named = Callable[[str], bool]


def part_of(tensor: str) -> tuple[str, str] | None:
    """Return the layer name and `LowRank` field of a tensor name; None if it has neither."""
    layer, _, part = tensor.rpartition(".")
    return (layer, PARTS[part]) if part in PARTS else None


def read_config(fields: ConfigFields) -> tuple[Said, bool, Named]:
    """Return a layer's rank and scale, whether it is DoRA, and whether a layer is a target.

    Raises `InvalidModelError`, and `UnsupportedModelError` for whole weights.
    """
    kind = fields.values.get("fine_tune_type", "lora")
    if kind not in ("lora", "dora"):
        raise UnsupportedModelError(
            f"{fields.where}: fine_tune_type={kind!r:.60} is not an adapter (supported: lora, "
            "dora). Convert full fine-tuned weights to a model directory with mlx_lm.fuse, and "
            "load that."
        )
    check_mlx_lm(fields)
    parameters = fields.section("lora_parameters")
    if parameters is None:
        raise fields.error("lora_parameters is missing")
    check_parameters(parameters)
    rank, scale = parameters.integer("rank"), parameters.number("scale")
    return lambda layer: (rank, scale), kind == "dora", lambda layer: True


def files_of(
    layers: Mapping[str, LowRank], num_layers: int, prefix: str, dropout: float
) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return the tensors and the configuration of an adapter whose layers have one rank and scale.

    ``prefix`` is prepended to the names, for a model that mlx-lm wraps.
    """
    any_layer = next(iter(layers.values()))
    tensors = {}
    for name, layer in layers.items():
        tensors[f"{prefix}{name}.lora_a"], tensors[f"{prefix}{name}.lora_b"] = layer.a, layer.b
        if layer.magnitude is not None:
            tensors[f"{prefix}{name}.m"] = layer.magnitude

    indices = [int(name.split(".")[2]) for name in layers]
    keys = dict.fromkeys(name.split(".", 3)[3] for name in layers)
    config = {
        "fine_tune_type": "lora" if any_layer.magnitude is None else "dora",
        "num_layers": num_layers - min(indices),
        "lora_parameters": {
            "rank": any_layer.a.shape[1],
            "scale": any_layer.scale,
            "dropout": dropout,
            "keys": list(keys),
        },
    }
    return tensors, config
