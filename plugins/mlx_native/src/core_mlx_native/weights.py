"""Checkpoint tensors: found, checked against the config, and brought into the dtype of the device.

Headers are checked before a byte of data is read, so that a broken file is an error with names
in it and never a crash further on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import mlx.core as mx
from safetensors import SafetensorError, safe_open

from core.errors import InvalidModelError
from core.model_files import read_json_object, typed_errors
from core_mlx_native.config import ModelConfig, Quantization
from core_mlx_native.layout import Shape, expected_tensors

_FLOATS = {"F32", "F16", "BF16"}
_INDEX = "model.safetensors.index.json"
# What a multimodal or older checkpoint holds beside the text model.
_PREFIX = "language_model."
_ALIEN = ("vision_tower.", "multi_modal_projector.", "audio_tower.")
_IGNORED_SUFFIX = "rotary_emb.inv_freq"


def load_weights(directory: Path, config: ModelConfig, dtype: mx.Dtype) -> dict[str, mx.array]:
    """Every tensor of `layout.expected_tensors`, evaluated, by its plain name.

    Quantised tensors are dequantised on the way: MLX's low-bit kernels are slower than a dense
    product for prefill, on CPU by far. Norm weights get Gemma's +1.
    Raises `InvalidModelError` that lists what is missing, extra, or mis-shaped.
    """
    files = _tensor_files(directory)
    headers = {path: _header(path) for path in files}
    _check(headers, config, directory)
    weights: dict[str, mx.array] = {}
    for name, tensor in _dense_tensors(files, config.quantization):
        if config.family.norm_offset and name.endswith("norm.weight"):
            tensor = tensor.astype(mx.float32) + 1.0
        weights[name] = tensor.astype(dtype)
        mx.eval(weights[name])  # one at a time: the file's own copy is freed at once
    return {name: weights[name] for name in expected_tensors(config)}


def plain_name(name: str) -> str | None:
    """A tensor's name in the text model; None for what does not belong to it."""
    name = name.removeprefix(_PREFIX).replace(f"model.{_PREFIX}", "model.", 1)
    if name.removeprefix("model.").startswith(_ALIEN) or name.endswith(_IGNORED_SUFFIX):
        return None
    return name


def _tensor_files(directory: Path) -> list[Path]:
    index = directory / _INDEX
    if not index.exists():
        files = sorted(directory.glob("*.safetensors"))
        if not files:
            raise InvalidModelError(f"{directory} holds no *.safetensors file, so no weights.")
        return files
    try:
        shards = set(read_json_object(index)["weight_map"].values())  # type: ignore[attr-defined]
        files = [directory / shard for shard in sorted(shards)]
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidModelError(f"{index} is not a weight index: {error!r:.120}") from error
    for path in files:
        if path.parent != directory or not os.path.isfile(path):
            raise InvalidModelError(f"{index} names {path.name!r}, which is not there.")
    return files


Header = dict[str, tuple[str, Shape]]


def _header(path: Path) -> Header:
    """Dtype and shape of each tensor; the library checks that the data is all there."""
    with typed_errors(str(path)), path.open("rb"):
        pass  # the library says of a file without permission that it is not there
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: (str(part.get_dtype()), tuple(part.get_shape()))
                for name, part in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidModelError(
            f"{path} is not a whole safetensors file ({error}). Download or convert it again."
        ) from error


def _check(headers: Mapping[Path, Header], config: ModelConfig, directory: Path) -> None:
    found: Header = {}
    for header in headers.values():
        found.update({plain: header[name] for name in header if (plain := plain_name(name))})
    expected = expected_tensors(config)
    if config.tied_head:
        found = {name: value for name, value in found.items() if not name.startswith("lm_head.")}
    problems = list(_mismatches(found, expected, config.quantization))
    if problems:
        shown = "; ".join(problems[:12])
        more = f"; and {len(problems) - 12} more" if len(problems) > 12 else ""
        raise InvalidModelError(
            f"The tensors in {directory} do not fit its config.json: {shown}{more}."
        )


def _mismatches(
    found: Header, expected: Mapping[str, Shape], quantization: Quantization | None
) -> Iterator[str]:
    used: set[str] = set()
    for name, shape in expected.items():
        parts = _stored(name, shape, found, quantization)
        used.update(parts)
        for part, (kinds, wanted) in parts.items():
            kind, got = found.get(part, ("", ()))
            if not kind:
                yield f"{part} is missing"
            elif got != wanted:
                yield f"{part} has shape {list(got)}, not {list(wanted)}"
            elif kind not in kinds:
                yield f"{part} has dtype {kind}, not {' or '.join(sorted(kinds))}"
    for name in found.keys() - used:
        yield f"{name} is not part of this model"


def _stored(
    name: str, shape: Shape, found: Header, quantization: Quantization | None
) -> dict[str, tuple[set[str], Shape]]:
    """The file's tensors that hold one weight: itself, or its three quantised parts."""
    base = name.removesuffix(".weight")
    if quantization is None or f"{base}.scales" not in found or len(shape) != 2:
        return {name: (_FLOATS, shape)}
    rows, columns = shape
    groups = (rows, columns // quantization.group_size)
    return {
        name: ({"U32"}, (rows, columns * quantization.bits // 32)),
        f"{base}.scales": (_FLOATS, groups),
        f"{base}.biases": (_FLOATS, groups),
    }


def _lazy_tensors(files: list[Path]) -> dict[str, mx.array]:
    arrays: dict[str, mx.array] = {}
    for path in files:  # read when they are evaluated, so all files may be open at once
        loaded = mx.load(str(path))
        if not isinstance(loaded, dict):
            raise InvalidModelError(f"{path} holds no named tensors.")
        arrays.update({plain: loaded[name] for name in loaded if (plain := plain_name(name))})
    return arrays


def _dense_tensors(
    files: list[Path], quantization: Quantization | None
) -> Iterator[tuple[str, mx.array]]:
    # All files together: the parts of one quantised weight may lie in different shards.
    arrays = _lazy_tensors(files)
    for name in sorted(arrays):
        base = name.removesuffix(".weight")
        if name.endswith((".scales", ".biases")) and f"{name.rsplit('.', 1)[0]}.scales" in arrays:
            continue
        if quantization is not None and f"{base}.scales" in arrays:
            yield name, _dequantize(arrays, base, quantization)
        else:
            yield name, arrays.pop(name)


def _dequantize(arrays: dict[str, mx.array], base: str, quantization: Quantization) -> mx.array:
    weight = arrays.pop(f"{base}.weight")
    try:
        return mx.dequantize(
            weight,
            arrays[f"{base}.scales"].astype(mx.float32),
            arrays[f"{base}.biases"].astype(mx.float32),
            group_size=quantization.group_size,
            bits=quantization.bits,
        )
    except ValueError as error:
        raise InvalidModelError(f"{base} cannot be dequantised: {error}") from error
