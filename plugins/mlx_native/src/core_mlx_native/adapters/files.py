"""An adapter's directory: read and checked against its model before it is believed, and written.

Two layouts are read and written, `mlx_lm` and `peft`. Nothing in a file is run, and no path that
one holds is followed.
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
from core_mlx_native.checkpoint.config import ModelConfig
from core_mlx_native.checkpoint.fields import Fields, JsonFiles
from core_mlx_native.checkpoint.files import Header, read_header
from core_mlx_native.checkpoint.saving import kind_of, save_tensors
from core_mlx_native.checkpoint.tensors import expected_tensors
from core_mlx_native.checkpoint.weights import lazy_tensors

CONFIG = "adapter_config.json"
Layout = Literal["mlx-lm", "peft"]
# In the metadata of the weights, which say whose the configuration beside them is, too.
_KEY = "core.adapter"
_KIND, _CONFIG_KIND = kind_of("an adapter", _KEY), outputs.Kind("", re.compile(b""))
_FLOATS = {"F32", "F16", "BF16"}
_KINDS = {
    "lora_embedding_": "it adapts an embedding",
    "lora_B.bias": "B has a bias (lora_bias)",
    "trainable_tokens_": "it replaces rows of an embedding (trainable_token_indices)",
    "modules_to_save": "it replaces a whole module (modules_to_save)",
    "lora_diag": "it is KaSA's",
    "lora_velora_": "it is VeLoRA's",
    "lora_monteclora_": "it is MonteCLoRA's",
    "embed_tokens.weight": "it replaces the whole embedding (save_embedding_layers)",
    "lm_head.weight": "it replaces the whole head (save_embedding_layers, modules_to_save)",
    "score.weight": "it is a classification head",
    "base_layer.": "it is a weight of the model itself",
    ".bias": "it replaces a bias of the model (bias)",
    "norm.weight": "it replaces a norm of the model (modules_to_save)",
}
_SHOWN = 12


@dataclass(frozen=True, slots=True)
class StoredAdapter:
    """An adapter as its files have it: ``layers`` by name, and the name of the ``layout``."""

    directory: Path
    layout: str
    layers: Mapping[str, LowRank]

    @property
    def described(self) -> str:
        """What it is, in a few words."""
        ranks = sorted({layer.a.shape[1] for layer in self.layers.values()})
        dora = any(layer.magnitude is not None for layer in self.layers.values())
        kind = "DoRA" if dora else "LoRA"
        return f"{kind} of rank {', '.join(map(str, ranks))} on {len(self.layers)} linear maps"


def read_adapter(path: str | os.PathLike[str], config: ModelConfig) -> StoredAdapter:
    """Read an adapter for a model of this config, in float32.

    Raises `ModelNotFoundError`, `ModelAccessError`, `UnsupportedModelError`, and
    `InvalidModelError` that lists by name and shape what does not belong to the model.
    """
    directory = _directory(path)
    fields = Fields(JsonFiles(directory).read(CONFIG), str(directory / CONFIG))
    layout: ModuleType = peft if "peft_type" in fields.values else mlx_lm
    file = _weights(directory, layout)
    said, dora, targeted = layout.read_config(fields)

    # Names and shapes of all tensors are looked at before any number is.
    header = read_header([file])
    names, problems = _named(header, layout, config)
    for layer, parts in names.items():
        if not targeted(layer):
            problems.append(f"{layer} has tensors and is not a target of {CONFIG}")
        problems += _problems(layer, parts, header, config, layout.TRANSPOSED, dora)
        if not problems and (wanted := said(layer)[0]) != (found := _rank(parts, header, layout)):
            problems.append(f"{layer} has rank {found}, and {CONFIG} says {wanted}")
    if problems or not names:
        raise InvalidModelError(_message(problems or ["it holds no tensors"], file))

    arrays = lazy_tensors([file])
    layers = {
        layer: _low_rank(parts, arrays, layout.TRANSPOSED, said(layer)[1])
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
    """Write an adapter; each file is there whole or not at all, the configuration last.

    ``notes`` are further keys of the configuration, which its readers pass over. Layers of several
    ranks or scales are written with the largest rank, and with the scale in B. Raises
    `core.OutputError` for an adapter that this program did not write, and OSError.
    """
    place = Path(directory)
    refuse_foreign(place)
    place.mkdir(parents=True, exist_ok=True)
    even = _evened(layers)
    if layout == "peft":
        tensors, said = peft.files_of(even, config.num_layers, dropout)
        save_tensors(place / peft.WEIGHTS, tensors, _KIND, {_KEY: "1", "format": "pt"})
    else:
        tensors, said = mlx_lm.files_of(even, config.num_layers, _prefix(config), dropout)
        save_tensors(place / mlx_lm.WEIGHTS, tensors, _KIND, {_KEY: "1", "format": "mlx"})
    text = json.dumps({**(notes or {}), **said}, indent=4) + "\n"
    outputs.write(place / CONFIG, text, _CONFIG_KIND)


def refuse_foreign(directory: Path) -> None:
    """Raise `OutputError` for a directory with an adapter that this program did not write."""
    if os.path.lexists(directory) and not directory.is_dir():
        raise OutputError(f"{directory} is a file. Name a directory for the adapter.")
    weights = [directory / layout.WEIGHTS for layout in (mlx_lm, peft)]
    for file in weights:
        if os.path.lexists(file):
            outputs.check(file, _KIND)
    config = directory / CONFIG
    outputs.check_plain(config)
    if os.path.lexists(config) and not any(file.exists() for file in weights):
        raise OutputError(
            f"{config} has no weights beside it that this program wrote, and is not replaced. Name "
            "another directory."
        )


def _directory(path: str | os.PathLike[str]) -> Path:
    location = Path(resolve_path(path))
    with typed_errors(str(location)):
        if not location.exists():
            raise ModelNotFoundError(
                f"There is no adapter at {str(location)!r}. Give the directory with {CONFIG}."
            )
        if not location.is_dir():
            raise InvalidModelError(
                f"{location} is a file, and an adapter for MLX is a directory with {CONFIG} and "
                f"{mlx_lm.WEIGHTS} or {peft.WEIGHTS}. GGUF adapters are for the backend llama_cpp."
            )
        if not os.path.lexists(location / CONFIG):
            raise ModelNotFoundError(f"There is no adapter in {str(location)!r}: no {CONFIG}.")
    return location


def _weights(directory: Path, layout: ModuleType) -> Path:
    file = directory / str(layout.WEIGHTS)
    with typed_errors(str(file)):
        if os.path.lexists(file):
            return file
        if (directory / peft.PICKLED).exists():
            raise InvalidModelError(
                f"{directory} holds {peft.PICKLED}, a pickle, which can run code when it is read. "
                f"Save the adapter as {peft.WEIGHTS} (PEFT: safe_serialization=True)."
            )
    raise ModelNotFoundError(
        f"There is no {file.name} in {str(directory)!r}, which {CONFIG} says is an adapter in "
        f"{layout.NAME}'s layout."
    )


Parts = dict[str, str]  # tensor names, by the field of `LowRank` that each is


def _named(
    header: Header, layout: ModuleType, config: ModelConfig
) -> tuple[dict[str, Parts], list[str]]:
    """The tensors of each adapted layer, in the model's order, and what belongs to none."""
    order = _linears(config)
    found: dict[str, Parts] = {}
    problems = []
    for tensor, (_, shape) in header.items():
        layer, part = layout.part_of(tensor) or ("", "")
        if layer in order:
            found.setdefault(layer, {})[part] = tensor
        else:
            reason = _reason(layer, config) if layer else _kind(tensor)
            problems.append(f"{tensor} {list(shape)} has no place in it: {reason}")
    return {layer: found[layer] for layer in order if layer in found}, sorted(problems)


def _linears(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """The shape (out, in) of every linear map that can have an adapter, by its name."""
    shapes = {
        name.removesuffix(".weight"): shape
        for name, shape in expected_tensors(config).items()
        if name.endswith(".weight") and name.split(".")[-2] in MODULES
    }
    return {name: (shape[0], shape[1]) for name, shape in shapes.items()}


def _kind(tensor: str) -> str:
    """Say what a tensor is that no layer's adapter has."""
    known = (what for part, what in _KINDS.items() if part in tensor)
    return next(known, "its name is not that of an adapter's tensor")


def _reason(layer: str, config: ModelConfig) -> str:
    parts = layer.split(".")
    if parts[-1] not in MODULES:
        return f"adapters are for {', '.join(MODULES)}"
    return f"the model has the layers 0 to {config.num_layers - 1}, as model.layers.N"


def _problems(
    layer: str, parts: Parts, header: Header, config: ModelConfig, transposed: bool, dora: bool
) -> Iterator[str]:
    """Everything about one layer's tensors that does not fit."""
    wanted = {"a", "b", "magnitude"} if dora else {"a", "b"}
    for part in sorted(wanted - parts.keys()):
        yield f"{layer} has no {part.upper() if part != 'magnitude' else part}"
    for part in sorted(parts.keys() - wanted):
        yield f"{parts[part]} is DoRA's, and {CONFIG} does not say that it is"

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

        held = shape[::-1] if transposed else shape  # A [in, rank], B [rank, out]
        side = (inner, "rank") if part == "a" else ("rank", out)
        expected = side[::-1] if transposed else side
        shown = f"[{expected[0]}, {expected[1]}]"
        if len(held) != 2 or held[0 if part == "a" else 1] != (inner if part == "a" else out):
            yield f"{tensor} has shape {list(shape)}, not {shown}"
            continue
        own = held[1 if part == "a" else 0]
        if own < 1:
            yield f"{tensor} has shape {list(shape)}: rank 0"
        elif rank not in (None, own):
            yield f"{tensor} has shape {list(shape)}, of another rank than its other half, {rank}"
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
                    f"{file}: {name} holds NaN or infinity. Its training went wrong: take an "
                    "earlier checkpoint of it."
                )


def _message(problems: list[str], file: Path) -> str:
    shown = "; ".join(problems[:_SHOWN])
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return f"The adapter {file} does not belong to this model: {shown}{more}."


def _evened(layers: Mapping[str, LowRank]) -> dict[str, LowRank]:
    """The same layers with one rank and one scale: filled up with zeros, and B multiplied."""
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
