"""Merging an adapter into its model, as a new model directory.

Quantised weights are quantised again with the same settings, and all others keep their dtype: the
merged model equals the model with the adapter up to the rounding of its storage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConversionError, ModelError, UnsupportedModelError
from core.models.files import open_model_file, resolve_path
from core_mlx_native.convert.staging import check_target, staged, write_json
from core_mlx_native.convert.weights import Progress, Shards
from core_mlx_native.cpu.blas import ensure_blas
from core_runtime.checkpoint.config import ModelConfig, load_config
from core_runtime.checkpoint.files import tensor_files
from core_runtime.checkpoint.names import plain_name
from core_runtime.checkpoint.own_files import RECORD
from core_runtime.tokenizer.templates import TEMPLATES

if TYPE_CHECKING:
    import mlx.core as mx

    from core_mlx_native.adapters.files import StoredAdapter
    from core_mlx_native.adapters.layers import LowRank

SHARD_BYTES = 5_000_000_000
_WEIGHTS = (".safetensors", ".index.json", ".bin", ".pt", ".pth", ".gguf", ".npz", ".onnx", ".h5")
_PACKED = ("weight", "scales", "biases")
_ADAPTER_CONFIG = "adapter_config.json"


def _silent(done: int, total: int) -> None:
    """Show no progress: the default of `merge`."""


def merge(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    progress: Progress = _silent,
) -> Path:
    """Write a model directory from a model and its adapter, and return its absolute path.

    ``out_dir`` appears once complete, with the model's other files. ``progress(done, total)``
    counts tensors. Raises `ConversionError` (the target is in use, the disk is full) and
    `ModelError` for a bad model or adapter.
    """
    ensure_blas()  # for a model loaded later: it must precede the import of mlx below
    from core_mlx_native.adapters.files import read_adapter

    source, target = Path(resolve_path(model)), Path(os.path.realpath(Path(out_dir).expanduser()))
    try:
        check_target(target, overwrite=overwrite)
        for place in (source, Path(resolve_path(adapter))):
            real = Path(os.path.realpath(place))
            if target == real or target in real.parents:
                raise ConversionError(
                    f"{place} is inside {target}, which would be replaced. Choose another output "
                    "directory."
                )

        config = load_config(source)
        stored = read_adapter(adapter, config)
        with staged(target, overwrite=overwrite, private=True) as directory:
            _write_weights(source, directory, config, stored, progress)
            _copy_others(source, directory)
            record = {"model": source.name, "adapter": stored.described}
            write_json(directory / RECORD, {"merged": record})
    except ModelError:  # some are OSErrors too
        raise
    except OSError as error:
        raise ConversionError(f"Cannot write the merged model to {target}: {error}.") from error
    return target


def _write_weights(
    source: Path,
    directory: Path,
    config: ModelConfig,
    stored: StoredAdapter,
    progress: Progress,
) -> None:
    """Save every tensor of the model, those of adapted layers with the adapter merged in."""
    import mlx.core as mx

    from core_mlx_native.adapters.loading import refuse_unchanged
    from core_mlx_native.checkpoint.weights import load_weights

    load_weights(source, config, mx.float32)  # checks all headers, and reads no data yet
    arrays = _by_stored_names(tensor_files(source))
    names = {plain_name(name): name for name in arrays}

    # Tensors are computed when saved, so only one at a time is in memory.
    changed: dict[str, mx.array] = {}
    differs = []
    for layer, added in stored.layers.items():
        parts = {part: arrays.get(names.get(f"{layer}.{part}", "")) for part in _PACKED}
        merged, differ = _merged(layer, added, config, parts)
        differs.append(differ)
        changed |= {names[f"{layer}.{part}"]: array for part, array in merged.items()}
    refuse_unchanged(stored, differs)

    shards, total = Shards(directory, SHARD_BYTES), len(arrays)
    progress(0, total)
    for done, name in enumerate(list(arrays), start=1):
        array = arrays.pop(name)
        if name in changed:
            array = changed.pop(name)
            _check_range(name, array)
        shards.add(name, array)
        progress(done, total)
    shards.finish()


def _merged(
    layer: str, added: LowRank, config: ModelConfig, parts: Mapping[str, mx.array | None]
) -> tuple[dict[str, mx.array], bool]:
    """Return one layer's weight parts with the adapter merged in, and whether they changed."""
    import mlx.core as mx

    from core_mlx_native.adapters.layers import merged
    from core_mlx_native.adapters.loading import changes
    from core_mlx_native.checkpoint.weights import has_kernel, unpack

    weight, scales, biases = (parts[part] for part in _PACKED)
    assert weight is not None  # `load_weights` has looked
    if config.quantization is None or scales is None or biases is None:
        whole = merged(weight, added).astype(weight.dtype)
        return {"weight": whole}, changes(weight, added)

    # Quantise again with the same settings.
    packing = config.quantization.packing(layer, looks_packed=True)
    if packing is None or not has_kernel(packing):
        raise UnsupportedModelError(
            f"MLX cannot quantise {layer} again with its packing ({packing}). Merge into the "
            "model that was quantised."
        )
    dense = unpack(weight, scales, biases, packing)
    whole = merged(dense, added).astype(scales.dtype)
    packed = mx.quantize(whole, packing.group_size, packing.bits)
    return dict(zip(_PACKED, packed, strict=True)), changes(dense, added)


def _check_range(name: str, array: mx.array) -> None:
    import mlx.core as mx

    if mx.issubdtype(array.dtype, mx.floating) and not bool(mx.isfinite(array).all()):
        raise ConversionError(
            f"{name} with the adapter overflows {str(array.dtype).removeprefix('mlx.core.')}: "
            "some values become infinite. Merge into a model stored in bfloat16 or float32."
        )


def _by_stored_names(files: list[Path]) -> dict[str, mx.array]:
    import mlx.core as mx

    arrays: dict[str, mx.array] = {}
    for path in files:
        loaded = mx.load(str(path), format="safetensors")
        assert isinstance(loaded, dict)  # `load_weights` has looked
        arrays |= loaded
    return arrays


def _copy_others(source: Path, directory: Path) -> None:
    """Copy configuration, tokenizer, templates and licence, config.json last.

    Weights are omitted, and an adapter's configuration, because transformers would look for the
    adapter.
    """
    others = [path for path in source.iterdir() if path.is_file() and path.name != _ADAPTER_CONFIG]
    others += source.glob(f"{TEMPLATES}/*.jinja")
    wanted = [path for path in others if not path.name.lower().endswith(_WEIGHTS)]
    for path in sorted(wanted, key=lambda path: path.name == "config.json"):
        if path.name != RECORD:
            target = directory / path.relative_to(source)
            target.parent.mkdir(exist_ok=True)
            with open_model_file(path) as file, open(target, "xb") as copy:
                shutil.copyfileobj(file, copy)
