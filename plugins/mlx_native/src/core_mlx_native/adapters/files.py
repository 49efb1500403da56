"""Reading and writing adapter directories, checked against the model before use.

Supports the layouts `mlx_lm` and `peft`. Code in a file is never run, and paths in it are never
followed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import mlx.core as mx

from core.errors import InvalidModelError, ModelNotFoundError, OutputError
from core.models.files import resolve_path, typed_errors
from core.system import outputs
from core_mlx_native.adapters import mlx_lm, peft
from core_mlx_native.adapters.apply import MODULES
from core_mlx_native.adapters.layers import LowRank
from core_mlx_native.checkpoint.saving import kind_of, save_tensors
from core_mlx_native.checkpoint.weights import lazy_tensors
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.checkpoint.fields import ConfigFields, JsonFiles
from core_runtime.checkpoint.files import Header, read_header
from core_runtime.checkpoint.tensors import expected_tensors

CONFIG = "adapter_config.json"
Layout = Literal["mlx-lm", "peft"]
# In the metadata of the weights; it identifies the owner of the configuration too.
_KEY = "core.adapter"
_KIND, _CONFIG_KIND = kind_of("an adapter", _KEY), outputs.Kind("", re.compile(b""))
_FLOATS = {"F32", "F16", "BF16"}
_KINDS = {
    "lora_embedding_": "it adapts an embedding",
    "lora_B.bias": "B has a bias (lora_bias)",
    "trainable_tokens_": "it replaces rows of an embedding (trainable_token_indices)",
    "modules_to_save": "it replaces a complete module (modules_to_save)",
    "lora_diag": "it belongs to KaSA",
    "lora_velora_": "it belongs to VeLoRA",
    "lora_monteclora_": "it belongs to MonteCLoRA",
    "embed_tokens.weight": "it replaces the embedding (save_embedding_layers)",
    "lm_head.weight": "it replaces the LM head (save_embedding_layers, modules_to_save)",
    "score.weight": "it is a classification head",
    "base_layer.": "it is a weight of the model itself",
    ".bias": "it replaces a bias of the model (bias)",
    "norm.weight": "it replaces a norm of the model (modules_to_save)",
}
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """An adapter as stored: its ``layers`` by name, and the name of its ``layout``."""

    directory: Path
    layout: str
    layers: Mapping[str, LowRank]

    @property
    def described(self) -> str:
        """A short description of the adapter."""
        ranks = sorted({layer.a.shape[1] for layer in self.layers.values()})
        dora = any(layer.magnitude is not None for layer in self.layers.values())
        kind = "DoRA" if dora else "LoRA"
        return f"{kind} of rank {', '.join(map(str, ranks))} on {len(self.layers)} linear maps"


def read_adapter(path: str | os.PathLike[str], config: ModelConfig) -> StoredAdapter:
    """Read an adapter for a model of this config, in float32.

    Raises `ModelNotFoundError`, `ModelAccessError`, `UnsupportedModelError`, and
    `InvalidModelError` that lists the tensors that do not fit the model.
    """
    directory = _directory(path)
    fields = ConfigFields(JsonFiles(directory).read(CONFIG), str(directory / CONFIG))
    layout: ModuleType = peft if "peft_type" in fields.values else mlx_lm
    file = _weights(directory, layout)
    rank_and_scale, dora, targeted = layout.read_config(fields)

    # Check names and shapes of all tensors before reading any values.
    header = read_header([file])
    names, problems = _named(header, layout, config)
    for layer, parts in names.items():
        if not targeted(layer):
            problems.append(f"{layer} has tensors but is not a target in {CONFIG}")
        problems += _problems(layer, parts, header, config, layout.TRANSPOSED, dora)
        if not problems and (wanted := rank_and_scale(layer)[0]) != (
            stored_rank := _rank(parts, header, layout)
        ):
            problems.append(f"{layer} has rank {stored_rank}, but {CONFIG} has {wanted}")
    if problems or not names:
        raise InvalidModelError(_message(problems or ["the file has no tensors"], file))

    arrays = lazy_tensors([file])
    layers = {
        layer: _low_rank(parts, arrays, layout.TRANSPOSED, rank_and_scale(layer)[1])
        for layer, parts in names.items()
    }
    _refuse_broken(layers, file)
    return StoredAdapter(directory, layout.NAME, layers)


def write_adapter(
    directory: str | os.PathLike[str],
    layers: Mapping[str, LowRank],
    config: ModelConfig,
    layout: Layout = "mlx-lm",
    dropout: float = 0.0,
    notes: Mapping[str, Any] | None = None,
) -> None:
    """Write an adapter, each file atomically and the configuration last.

    ``notes`` are extra configuration keys, which readers ignore. Layers of different ranks or
    scales are written with the largest rank, and with their scale folded into B. Raises
    `core.OutputError` if the directory has an adapter that this program did not write, and OSError.
    """
    place = Path(directory)
    refuse_foreign(place)
    place.mkdir(parents=True, exist_ok=True)
    even = _evened(layers)
    if layout == "peft":
        tensors, settings = peft.files_of(even, config.num_layers, dropout)
        save_tensors(place / peft.WEIGHTS, tensors, _KIND, {_KEY: "1", "format": "pt"})
    else:
        tensors, settings = mlx_lm.files_of(even, config.num_layers, _prefix(config), dropout)
        save_tensors(place / mlx_lm.WEIGHTS, tensors, _KIND, {_KEY: "1", "format": "mlx"})
    text = json.dumps({**(notes or {}), **settings}, indent=4) + "\n"
    outputs.write(place / CONFIG, text, _CONFIG_KIND)


def refuse_foreign(directory: Path) -> None:
    """Raise `OutputError` for a directory with an adapter that this program did not write."""
    if os.path.lexists(directory) and not directory.is_dir():
        raise OutputError(f"{directory} is a file. Choose a directory for the adapter.")
    weights = [directory / layout.WEIGHTS for layout in (mlx_lm, peft)]
    for file in weights:
        if os.path.lexists(file):
            outputs.check(file, _KIND)
    config = directory / CONFIG
    outputs.check_plain(config)
    if os.path.lexists(config) and not any(file.exists() for file in weights):
        raise OutputError(
            f"{config} is not replaced: its directory has no adapter weights written by this "
            "program. Choose another directory."
        )


def _directory(path: str | os.PathLike[str]) -> Path:
    location = Path(resolve_path(path))
    with typed_errors(str(location)):
        if not location.exists():
            raise ModelNotFoundError(
                f"Adapter not found: {location} does not exist. Pass the directory that contains "
                f"{CONFIG}."
            )
        if not location.is_dir():
            raise InvalidModelError(
                f"{location} is a file. An MLX adapter is a directory with {CONFIG} and "
                f"{mlx_lm.WEIGHTS} or {peft.WEIGHTS}. For a GGUF adapter, use backend llama_cpp."
            )
        if not os.path.lexists(location / CONFIG):
            raise ModelNotFoundError(
                f"{location} is not an adapter directory: {CONFIG} is missing."
            )
    return location


def _weights(directory: Path, layout: ModuleType) -> Path:
    file = directory / str(layout.WEIGHTS)
    with typed_errors(str(file)):
        if os.path.lexists(file):
            return file
        if (directory / peft.PICKLED).exists():
            raise InvalidModelError(
                f"{directory} contains {peft.PICKLED}, a pickle file, which can run code when it "
                f"is read. Save the adapter as {peft.WEIGHTS} (PEFT: safe_serialization=True)."
            )
    raise ModelNotFoundError(
        f"{file} is missing: according to {CONFIG} the adapter has the {layout.NAME} layout. Copy "
        "the file there, or save the adapter again."
    )


Parts = dict[str, str]  # tensor names by field of `LowRank`


def _named(
    header: Header, layout: ModuleType, config: ModelConfig
) -> tuple[dict[str, Parts], list[str]]:
    """Return the tensors of each adapted layer, in the model's order, and the misplaced ones."""
    order = _linears(config)
    by_layer: dict[str, Parts] = {}
    problems = []
    for tensor, (_, shape) in header.items():
        layer, part = layout.part_of(tensor) or ("", "")
        if layer in order:
            by_layer.setdefault(layer, {})[part] = tensor
        else:
            reason = _reason(layer, config) if layer else _kind(tensor)
            problems.append(f"{tensor} {list(shape)} does not belong to the model: {reason}")
    return {layer: by_layer[layer] for layer in order if layer in by_layer}, sorted(problems)


def _linears(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Return the shape (out, in) of every linear map that can have an adapter, by its name."""
    shapes = {
        name.removesuffix(".weight"): shape
        for name, shape in expected_tensors(config).items()
        if name.endswith(".weight") and name.split(".")[-2] in MODULES
    }
    return {name: (shape[0], shape[1]) for name, shape in shapes.items()}


def _kind(tensor: str) -> str:
    """Return the kind of a tensor that does not belong to a layer's adapter."""
    known = (what for part, what in _KINDS.items() if part in tensor)
    return next(known, "it is not named like an adapter tensor")


def _reason(layer: str, config: ModelConfig) -> str:
    parts = layer.split(".")
    if parts[-1] not in MODULES:
        return f"only {', '.join(MODULES)} can have an adapter"
    return f"the model has layers model.layers.0 to model.layers.{config.num_layers - 1}"


def _problems(
    layer: str, parts: Parts, header: Header, config: ModelConfig, transposed: bool, dora: bool
) -> Iterator[str]:
    """Yield the problems of one layer's tensors."""
    wanted = {"a", "b", "magnitude"} if dora else {"a", "b"}
    for part in sorted(wanted - parts.keys()):
        yield f"{layer} has no {part.upper() if part != 'magnitude' else part}"
    for part in sorted(parts.keys() - wanted):
        yield f"{parts[part]} belongs to DoRA, which {CONFIG} does not enable"

    out, inner = _linears(config)[layer]
    rank = None
    for part, tensor in sorted(parts.items()):
        kind, shape = header[tensor]
        if kind not in _FLOATS:
            yield f"{tensor} has dtype {kind}, not {' or '.join(sorted(_FLOATS))}"
        if part == "magnitude":
            if shape != (out,):
                yield f"{tensor} has shape {list(shape)}, not [{out}]"
            continue

        stored = shape[::-1] if transposed else shape  # A [in, rank], B [rank, out]
        side = (inner, "rank") if part == "a" else ("rank", out)
        expected = side[::-1] if transposed else side
        shown = f"[{expected[0]}, {expected[1]}]"
        if len(stored) != 2 or stored[0 if part == "a" else 1] != (inner if part == "a" else out):
            yield f"{tensor} has shape {list(shape)}, not {shown}"
            continue
        own = stored[1 if part == "a" else 0]
        if own < 1:
            yield f"{tensor} has shape {list(shape)}: rank 0"
        elif rank not in (None, own):
            yield f"{tensor} has shape {list(shape)}, but its other half has rank {rank}"
        rank = own


def _rank(parts: Parts, header: Header, layout: ModuleType) -> int:
    shape = header[parts["a"]][1]
    return shape[0] if layout.TRANSPOSED else shape[1]


def _low_rank(
    parts: Parts, arrays: Mapping[str, mx.array], transposed: bool, scale: float
) -> LowRank:
    a, b = (arrays[parts[part]].astype(mx.float32) for part in ("a", "b"))
    magnitude = arrays[parts["magnitude"]].astype(mx.float32) if "magnitude" in parts else None
    turned = (mx.contiguous(a.T), mx.contiguous(b.T)) if transposed else (a, b)
    return LowRank(*turned, scale, magnitude)


def _refuse_broken(layers: Mapping[str, LowRank], file: Path) -> None:
    for name, layer in layers.items():
        for array in (layer.a, layer.b, layer.magnitude):
            if array is not None and not bool(mx.isfinite(array).all()):
                raise InvalidModelError(
                    f"{file}: {name} contains NaN or infinity: the training diverged. Use an "
                    "earlier checkpoint of the adapter."
                )


def _message(problems: list[str], file: Path) -> str:
    shown = "; ".join(problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return f"The adapter {file} does not fit this model: {shown}{more}."


def _evened(layers: Mapping[str, LowRank]) -> dict[str, LowRank]:
    """Return the layers with one common rank and scale.

    A and B are padded with zeros, and B is multiplied.
    """
    rank = max(layer.a.shape[1] for layer in layers.values())
    scale = next(iter(layers.values())).scale
    return {name: _padded(layer, rank, scale) for name, layer in layers.items()}


def _padded(layer: LowRank, rank: int, scale: float) -> LowRank:
    missing = rank - layer.a.shape[1]
    if not missing and layer.scale == scale:
        return layer
    a = mx.pad(layer.a, [(0, 0), (0, missing)])
    b = mx.pad(layer.b * (layer.scale / scale), [(0, missing), (0, 0)])
    return LowRank(a, b, scale, layer.magnitude)


def _prefix(config: ModelConfig) -> str:
    return "language_model." if config.model_type == "gemma3" else ""  # mlx-lm wraps its text part
