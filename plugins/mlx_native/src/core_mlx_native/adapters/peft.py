"""Adapters in PEFT's layout: ``adapter_model.safetensors`` next to ``adapter_config.json``.

Read from huggingface/peft: src/peft/utils/save_and_load.py (``get_peft_model_state_dict``),
src/peft/tuners/lora/layer.py and config.py. A is stored as [rank, in] and B as [out, rank], the
scale is ``lora_alpha / r``, or over the root of ``r`` with ``use_rslora``, and ``rank_pattern`` and
``alpha_pattern`` list layers with other values, by a regular expression for the end of their names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import mlx.core as mx

from core.errors import UnsupportedModelError
from core_mlx_native.adapters.apply import MODULES, scale_of
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.adapters.peft_keys import MERGE, check_peft
from core_runtime.checkpoint.fields import ConfigFields
from core_runtime.checkpoint.names import plain_name

NAME = "PEFT"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
TRANSPOSED = True
_BASE = "base_model.model."
_PARTS = {
    ".lora_A.weight": "a",
    ".lora_B.weight": "b",
    ".lora_magnitude_vector": "magnitude",
    ".lora_magnitude_vector.weight": "magnitude",  # as some versions wrote it
}
_PATTERN_LENGTH = 200

Said = Callable[[str], tuple[int, float]]
Named = Callable[[str], bool]


def part_of(tensor: str) -> tuple[str, str] | None:
    """Return the layer name and `LowRank` field of a tensor name; None if it has neither."""
    for suffix, part in _PARTS.items():
        if tensor.startswith(_BASE) and tensor.endswith(suffix):
            return tensor.removeprefix(_BASE).removesuffix(suffix), part
    return None


def read_config(fields: ConfigFields) -> tuple[Said, bool, Named]:
    """Return a layer's rank and scale, whether it is DoRA, and whether a layer is a target.

    Raises `InvalidModelError`, and `UnsupportedModelError` for anything but plain LoRA.
    """
    kind = fields.values.get("peft_type")
    if kind != "LORA":
        raise UnsupportedModelError(
            f"{fields.where}: peft_type={kind!r:.60} is not supported (supported: LORA). {MERGE}"
        )
    check_peft(fields)

    rank, alpha = fields.integer("r"), fields.number("lora_alpha", 8)
    rslora = fields.flag("use_rslora", False)
    ranks, alphas = _pattern(fields, "rank_pattern"), _pattern(fields, "alpha_pattern")

    def rank_and_scale(layer: str) -> tuple[int, float]:
        own_rank = _of(ranks, layer)
        own = rank if own_rank is None else ranks_of(own_rank)
        own_alpha = _of(alphas, layer)
        value = alpha if own_alpha is None else alphas_of(own_alpha)
        return own, scale_of(value, own, rslora=rslora)

    def ranks_of(key: str) -> int:
        return ConfigFields(ranks, f"{fields.where}: rank_pattern").integer(key)

    def alphas_of(key: str) -> float:
        return ConfigFields(alphas, f"{fields.where}: alpha_pattern").number(key)

    return rank_and_scale, fields.flag("use_dora", False), _targets(fields)


def _targets(fields: ConfigFields) -> Named:
    """Return a test of whether PEFT would adapt a layer; it ignores the tensors of others.

    ``target_modules`` may also be a regular expression, which is not evaluated, or a keyword for
    several modules.
    """
    targets = _listed(fields, "target_modules")
    excluded = _listed(fields, "exclude_modules") or []
    indices = fields.values.get("layers_to_transform")
    numbers = indices if isinstance(indices, list) else [indices]

    def named(layer: str, modules: list[str]) -> bool:
        return any(f".{layer}".endswith(f".{module}") for module in modules)

    def adapts(layer: str) -> bool:
        if named(layer, excluded) or (targets is not None and not named(layer, targets)):
            return False
        return indices is None or int(layer.split(".")[2]) in numbers

    return adapts


def _listed(fields: ConfigFields, name: str) -> list[str] | None:
    modules = fields.values.get(name)
    if not isinstance(modules, list):
        return None
    return [plain_name(module) or module for module in modules if isinstance(module, str)]


def files_of(
    layers: Mapping[str, LowRank], num_layers: int, dropout: float
) -> tuple[dict[str, mx.array], dict[str, Any]]:
    """Return the tensors and configuration of an adapter whose layers have one rank and scale."""
    any_layer = next(iter(layers.values()))
    tensors = {}
    for name, layer in layers.items():
        tensors[f"{_BASE}{name}.lora_A.weight"] = layer.a.T
        tensors[f"{_BASE}{name}.lora_B.weight"] = layer.b.T
        if layer.magnitude is not None:
            tensors[f"{_BASE}{name}.lora_magnitude_vector"] = layer.magnitude

    # Module names and layer numbers, if every layer has every module.
    indices = list(dict.fromkeys(int(name.split(".")[2]) for name in layers))
    modules = [one for one in MODULES if any(name.endswith(f".{one}") for name in layers)]
    regular = len(indices) * len(modules) == len(layers)
    rank = any_layer.a.shape[1]
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": rank,
        "lora_alpha": any_layer.scale * rank,
        "lora_dropout": dropout,
        "target_modules": modules if regular else list(layers),
        "layers_to_transform": indices if regular and len(indices) < num_layers else None,
        "bias": "none",
        "fan_in_fan_out": False,
        "use_rslora": False,
        "use_dora": any_layer.magnitude is not None,
    }
    return tensors, config


def _pattern(fields: ConfigFields, name: str) -> Mapping[str, Any]:
    section = fields.section(name)
    return section.values if section else {}


def _of(pattern: Mapping[str, Any], layer: str) -> str | None:
    """Return the key that matches a layer: its name, or the end of its name after a dot.

    PEFT treats keys as regular expressions. Only plain names are supported here, because evaluating
    an expression from a file may never end.
    """
    for key in pattern:
        plain = key.removeprefix("^").removesuffix("$").replace("\\.", ".")
        plain = plain_name(plain) or plain  # as the layers of a multimodal model are called here
        if len(key) > _PATTERN_LENGTH or not re.fullmatch(r"[\w.-]+", plain):
            raise UnsupportedModelError(
                f"The adapter's rank_pattern or alpha_pattern has the key {key!r:.60}, but only "
                "plain layer names are supported. List the layers one by one."
            )
        if layer == plain or layer.endswith(f".{plain}"):
            return key
    return None
