"""Description of one model by its files: their facts, their quantisation, and their damage.

The names of quantisations are the usual ones: Q4_K_M, MXFP4, FP8, BF16. The numbers of GGUF are
those of llama.cpp's ``llama_ftype`` and ggml's ``ggml_type``.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from core.errors import CoreError
from core.models.files import read_config_json
from core.models.gguf import (
    NO_LANGUAGE_MODEL,
    TENSOR_TYPES,
    GgufHeader,
    GgufTensor,
    read_gguf,
)
from core.models.weight_files import (
    BROKEN_HEADER,
    INCOMPLETE,
    INDEX,
    cut_gguf,
    finished_name,
    look_at_safetensors,
    missing_shards,
    not_gguf,
    unreadable,
    weight_files,
)
from core.types import DiscoveredModel

Files: TypeAlias = Sequence[tuple[str, os.stat_result]]

_GGUF_KEYS = ("general.architecture", "general.file_type")
_NOTHING = GgufHeader(0, {})


def safetensors_model(
    files: Files, source: str, partly: Collection[str] = (), examine: bool = True
) -> DiscoveredModel:
    """Return the model of a directory with config.json and these safetensors files.

    The files that hold the model are counted (`core.models.weight_files`), or all of them if none
    does. ``partly`` names the files that are still being downloaded. Without ``examine`` no header
    is read.
    """
    directory = os.path.dirname(files[0][0])
    named = {}
    for path, status in files:
        name = os.path.basename(path)
        named[finished_name(name) or name] = path, status
    own, problem = _own(directory, named, partly)
    shown = [named[name] for name in own] or list(named.values())

    config, config_problem = _config(directory)
    stored = ""
    if examine and not problem:
        seen = look_at_safetensors(directory, own)
        problem, stored = seen.problem or config_problem, seen.stored
    return _safetensors(directory, shown, source, problem, config, stored)


def pickled_model(files: Files, source: str) -> DiscoveredModel:
    """Return the model of a directory with config.json whose only weights are pickles."""
    directory = os.path.dirname(files[0][0])
    only = os.path.basename(min(files)[0])
    problem = f"no safetensors, only {only}"
    return _safetensors(directory, files, source, problem, _config(directory)[0])


def _own(directory: str, names: Collection[str], partly: Collection[str]) -> tuple[list[str], str]:
    """Return the names of the model's existing files, and the problem of the set."""
    try:
        chosen = weight_files(directory, names)
    except CoreError:
        return [], f"broken {INDEX}"
    own = [name for name in chosen.own if name in names]
    if any(name in partly for name in own):
        return own, INCOMPLETE
    missing = missing_shards(len(chosen.missing), len(chosen.own)) if chosen.missing else ""
    return own, chosen.problem or missing


def _safetensors(
    directory: str,
    files: Files,
    source: str,
    problem: str,
    config: dict[str, object],
    stored: str = "",
) -> DiscoveredModel:
    quantisation = of_config(config, stored)
    return DiscoveredModel(
        directory,
        _model_type(config),
        quantisation.bits,
        quantisation.group,
        len(files),
        "safetensors",
        sum(status.st_size for _, status in files),
        source,
        quantisation=quantisation.name,
        modified=max(status.st_mtime for _, status in files),
        problem=problem,
    )


def gguf_model(
    files: Files, source: str, problem: str = "", examine: bool = True
) -> Iterator[DiscoveredModel]:
    """Yield the language model in these GGUF files, the first one first, if it is one."""
    first = files[0][0]
    header = _first_keys(first)
    if examine and not problem:
        problem, header = _look_at_gguf([path for path, _ in files], header)
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if architecture == "clip" or metadata.get("general.type") in NO_LANGUAGE_MODEL:
        return

    quantisation = of_gguf(metadata, header.tensors)
    yield DiscoveredModel(
        first,
        architecture if isinstance(architecture, str) else "",
        quantisation.bits,
        quantisation.group,
        len(files),
        "gguf",
        sum(status.st_size for _, status in files),
        source,
        quantisation=quantisation.name,
        modified=max(status.st_mtime for _, status in files),
        problem=problem,
    )


def _first_keys(path: str) -> GgufHeader:
    try:
        return read_gguf(path, only=_GGUF_KEYS)
    except CoreError:
        return _NOTHING


def _look_at_gguf(paths: Sequence[str], known: GgufHeader) -> tuple[str, GgufHeader]:
    """Return what is wrong with one of these files, and the first one's header as far as it is
    read.
    """
    first = known
    for number, path in enumerate(paths):
        try:
            if words := not_gguf(path):
                return words, first
            header = read_gguf(path, tensors=True, cut_off=True)
            problem = cut_gguf(path, header)
        except CoreError as error:
            return unreadable(error), first
        except OSError:
            return "unreadable", first
        first = first if number else header
        if problem:
            return problem if len(paths) == 1 else f"{problem}: {os.path.basename(path)}", first
    return "", first


def _config(directory: str) -> tuple[dict[str, object], str]:
    """Return a model's config.json, and its problem."""
    try:
        return read_config_json(directory), ""
    except CoreError as error:
        words = unreadable(error)
        return {}, "broken config.json" if words == BROKEN_HEADER else words


def _model_type(config: dict[str, object]) -> str:
    for candidate in (config, config.get("text_config")):
        if isinstance(candidate, dict):
            name = candidate.get("model_type")
            if isinstance(name, str) and name:
                return name
    return ""


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

_FLOATS = {"F8_E4M3": "FP8", "F8_E5M2": "FP8", "F4": "FP4"}
_TORCH = {
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float64": "F64",
    "float8_e4m3fn": "FP8",
}


def of_gguf(metadata: Mapping[str, object], tensors: Iterable[GgufTensor] = ()) -> Quantisation:
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
        if isinstance(settings, dict) and (quantisation := _of_settings(settings)).name:
            return quantisation
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
