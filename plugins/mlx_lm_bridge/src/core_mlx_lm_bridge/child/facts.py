"""Facts of a loaded model, from its config.json and its weights."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from core_mlx_lm_bridge.child.failures import Failure
from core_mlx_lm_bridge.protocol import Ok

_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "n_ctx")
_UNBOUNDED = 2**31 - 1  # for models that have no positions, as Mamba


def facts(mx: Any, model: Any, config: Mapping[str, Any], context_len: int) -> Ok:
    """Return the answer to `Load`.

    Raises `Failure` for a ``context_len`` beyond the model's context length.
    """
    text = {**config, **_section(config, "text_config")}
    own = _context(text, model)
    if context_len > own:
        raise Failure(
            "InvalidOptionError", f"at most {own}, the model's context length", context_len, own
        )

    quantization = _section(config, "quantization")
    return Ok(
        model_type=str(config.get("model_type", "")),
        vocab_size=_vocab_size(text, model),
        layers=len(model.layers),
        hidden_size=_integer(text, ("hidden_size", "n_embd", "d_model", "dim"), 1),
        quant_bits=_integer(quantization, ("bits",), 0),
        quant_group=_integer(quantization, ("group_size",), 0),
        context_length=context_len or own,
        dtype=_dtype(mx, model),
        device=_device(mx),
    )


def _context(text: Mapping[str, Any], model: Any) -> int:
    return _integer(text, _LENGTHS, 0) or _integer(_defaults(model), _LENGTHS, _UNBOUNDED)


def _vocab_size(text: Mapping[str, Any], model: Any) -> int:
    names = ("vocab_size",)
    return _integer(text, names, 0) or _integer(_defaults(model), names, 1)


def _defaults(model: Any) -> Mapping[str, Any]:
    """Return mlx-lm's default values for keys that config.json lacks."""
    return vars(model.args) if hasattr(model, "args") else {}


def _dtype(mx: Any, model: Any) -> str:
    """Return the dtype of the weights; for quantised weights, that of their scales."""
    leaves = import_module("mlx.utils").tree_flatten(model.parameters())
    kinds = {value.dtype for _, value in leaves}
    names = ("bfloat16", "float16", "float32")  # the least exact one counts
    return next((name for name in names if getattr(mx, name) in kinds), "float32")


def _device(mx: Any) -> str:
    device = mx.default_device()
    name = mx.device_info(device).get("device_name", "")
    kind = "gpu" if device == mx.Device(mx.gpu) else "cpu"
    return f"{kind}: {name}" if name else kind


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = values.get(name)
    return value if isinstance(value, Mapping) else {}


def _integer(values: Mapping[str, Any], names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = values.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return default
