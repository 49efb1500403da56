"""The ``rope_scaling`` entry of config.json, from GGUF metadata or frequency factors."""

from __future__ import annotations

from typing import Any

from core_mlx_native.convert.metadata import Metadata
from core_mlx_native.convert.source import Source
from core_mlx_native.fields import Fields
from core_mlx_native.rope import parse_rope

_FACTORS = "rope_freqs.weight"


def rope_scaling(meta: Metadata) -> dict[str, Any] | None:
    """None without scaling, linear scaling with its factor; anything else is refused.

    Defaults, and the older name of the factor, as llama.cpp reads them (``llama-model.cpp``).
    """
    kind = meta.text(".rope.scaling.type", "linear")
    factor = meta.number(".rope.scaling.factor", meta.number(".rope.scale_linear", 1.0))
    if kind == "none" or (kind == "linear" and factor in (0.0, 1.0)):
        return None
    if kind != "linear":
        raise meta.error(f"its rope scaling type {kind!r} is not known here (known: linear)")
    return {"rope_type": "linear", "factor": factor}


def llama_rope_scaling(source: Source, head_dim: int) -> dict[str, Any] | None:
    """The same; a GGUF holds Llama 3's scaling as one divisor per frequency instead.

    The parameters are recovered as those that give the stored divisors, among the ones that
    Meta's releases use. Raises `ConversionError` when there are none.
    """
    linear = rope_scaling(source.metadata)
    if _FACTORS not in source.tensors:
        return linear
    unknown = source.metadata.error(f"{_FACTORS} follows no rope scaling that is known here")
    if linear or source.shape(_FACTORS) != (head_dim // 2,):
        raise unknown
    stored = source.array(_FACTORS).tolist()
    scaling = {
        "rope_type": "llama3",
        "factor": round(max(stored), 4),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    base = source.metadata.number(".rope.freq_base", 10_000.0)
    expected = llama3_divisors(scaling, base, head_dim, source.metadata.where)
    if any(
        abs(found - wanted) > 1e-3 * wanted for found, wanted in zip(stored, expected, strict=True)
    ):
        raise unknown
    return scaling if scaling["factor"] != 1.0 else None


def llama3_divisors(
    scaling: dict[str, Any], base: float, head_dim: int, where: str = ""
) -> list[float]:
    """What each of the ``head_dim / 2`` rope frequencies is divided by."""
    plain, scaled = (
        parse_rope(Fields(values, where), "full_attention", head_dim).periods
        for values in ({"rope_theta": base}, {"rope_theta": base, "rope_scaling": scaling})
    )
    return [after / before for before, after in zip(plain, scaled, strict=True)]
