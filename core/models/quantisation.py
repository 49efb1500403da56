"""Names of weight formats and quantisations: Q4_K_M, MXFP4, FP8, BF16.

The numbers of GGUF are those of llama.cpp's ``llama_ftype`` and ggml's ``ggml_type``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from core.models.gguf import GgufTensor, GgufValue


@dataclass(frozen=True, slots=True)
class Quantisation:
    """A name, the nominal bits of a weight, and the number of weights per scale; 0 for none."""

    name: str = ""
    bits: int = 0
    group: int = 0


_FILE_TYPES = {
    0: Quantisation("F32"),
    1: Quantisation("F16"),
    2: Quantisation("Q4_0", 4, 32),
    3: Quantisation("Q4_1", 4, 32),
    7: Quantisation("Q8_0", 8, 32),
    8: Quantisation("Q5_0", 5, 32),
    9: Quantisation("Q5_1", 5, 32),
    10: Quantisation("Q2_K", 2, 256),
    11: Quantisation("Q3_K_S", 3, 256),
    12: Quantisation("Q3_K_M", 3, 256),
    13: Quantisation("Q3_K_L", 3, 256),
    14: Quantisation("Q4_K_S", 4, 256),
    15: Quantisation("Q4_K_M", 4, 256),
    16: Quantisation("Q5_K_S", 5, 256),
    17: Quantisation("Q5_K_M", 5, 256),
    18: Quantisation("Q6_K", 6, 256),
    19: Quantisation("IQ2_XXS", 2, 256),
    20: Quantisation("IQ2_XS", 2, 256),
    21: Quantisation("Q2_K_S", 2, 256),
    22: Quantisation("IQ3_XS", 3, 256),
    23: Quantisation("IQ3_XXS", 3, 256),
    24: Quantisation("IQ1_S", 1, 256),
    25: Quantisation("IQ4_NL", 4, 32),
    26: Quantisation("IQ3_S", 3, 256),
    27: Quantisation("IQ3_M", 3, 256),
    28: Quantisation("IQ2_S", 2, 256),
    29: Quantisation("IQ2_M", 2, 256),
    30: Quantisation("IQ4_XS", 4, 256),
    31: Quantisation("IQ1_M", 1, 256),
    32: Quantisation("BF16"),
    36: Quantisation("TQ1_0", 2, 256),
    37: Quantisation("TQ2_0", 2, 256),
    38: Quantisation("MXFP4", 4, 32),
    39: Quantisation("NVFP4", 4, 64),
    40: Quantisation("Q1_0", 1, 128),
}
_GUESSED = 1024  # a flag on top of the file type

TENSOR_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
"""The name of each ggml type, its weights per block, and its bytes per block."""

_FLOATS = {"F8_E4M3": "FP8", "F8_E5M2": "FP8", "F4": "FP4"}
_TORCH = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "float8_e4m3fn": "FP8",
}


def of_gguf(metadata: Mapping[str, GgufValue], tensors: Iterable[GgufTensor] = ()) -> Quantisation:
    """Return the quantisation of a GGUF file by its header's file type.

    Without a known file type it is the type of most weights.
    """
    number = metadata.get("general.file_type")
    known = _FILE_TYPES.get(number & ~_GUESSED) if isinstance(number, int) else None
    return known or _of_tensors(tensors)


def _of_tensors(tensors: Iterable[GgufTensor]) -> Quantisation:
    weights: Counter[int] = Counter()
    for tensor in tensors:
        weights[tensor.ggml_type] += math.prod(tensor.shape)
    if not weights:
        return Quantisation()
    name, block, size = TENSOR_TYPES.get(weights.most_common(1)[0][0], ("", 1, 4))
    return Quantisation(name, 8 * size // block if block > 1 else 0, block if block > 1 else 0)


def of_config(config: Mapping[str, object], stored: str = "") -> Quantisation:
    """Return the quantisation in config.json, else from ``stored``, the type of most weights.

    ``stored`` is safetensors' name of the type.
    """
    for key in ("quantization", "quantization_config"):  # MLX's name, transformers' name
        settings = config.get(key)
        if isinstance(settings, dict) and (found := _of_settings(settings)).name:
            return found
    text = config.get("text_config")  # of models that also see or hear
    named = [part.get(key) for part in (config, text) if isinstance(part, dict) for key in _DTYPES]
    dtype = next((name for name in named if isinstance(name, str)), "").removeprefix("torch.")
    return Quantisation(_FLOATS.get(stored, stored) or _TORCH.get(dtype, ""))


_DTYPES = ("torch_dtype", "dtype")


def _of_settings(settings: Mapping[str, object]) -> Quantisation:
    bits, group = _count(settings.get("bits")), _count(settings.get("group_size"))
    method = _text(settings, "quant_method").replace("_", "-")
    if method == "bitsandbytes":
        return _bitsandbytes(settings)
    if method == "compressed-tensors":
        return _compressed(settings)

    # MLX names a mode, others a method; "affine" is the one that goes without saying.
    named = _text(settings, "quant_algo") or _text(settings, "mode").replace("affine", "") or method
    if named.startswith(("mxfp", "nvfp", "fp")) or not bits:
        return Quantisation(named.upper(), bits, group)
    return Quantisation(f"{named.upper()} {bits}-bit".lstrip(), bits, group)


def _bitsandbytes(settings: Mapping[str, object]) -> Quantisation:
    if settings.get("load_in_8bit") is True:
        return Quantisation("INT8", 8)
    kind = _text(settings, "bnb_4bit_quant_type")
    return Quantisation(kind.upper() or "FP4", 4, 64)


def _compressed(settings: Mapping[str, object]) -> Quantisation:
    """Return the quantisation by llm-compressor's groups: the first one's weights represent all."""
    if _text(settings, "format").startswith(("nvfp4", "mxfp4")):
        return Quantisation(_text(settings, "format")[:5].upper(), 4)
    groups = settings.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        return Quantisation("COMPRESSED")
    bits, group = _count(weights.get("num_bits")), _count(weights.get("group_size"))
    kind = "FP" if weights.get("type") == "float" else "INT"
    return Quantisation(f"{kind}{bits or ''}", bits, group)


def _text(settings: Mapping[str, object], key: str) -> str:
    value = settings.get(key)
    return value.lower()[:40] if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and value is not True and value > 0 else 0
