"""A conversion, from the source's checksum to the rename of the finished directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from core.errors import ConversionError, ModelError
from core_mlx_native.convert.source import verified_sha256
from core_mlx_native.convert.staging import check_target, staged, write_json
from core_mlx_native.convert.tokenizer_files import write_templates, write_tokenizer
from core_mlx_native.convert.weights import Progress, Storage, write_weights
from core_runtime.checkpoint.config import parse_config
from core_runtime.checkpoint.own_files import RECORD
from core_runtime.gguf.config import generation_config, hf_config
from core_runtime.gguf.keys import check_keys
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.tensors import check_architecture, plan

CONVERTER_VERSION = 2
"""Incremented whenever the same source and options give different files."""


def _silent(done: int, total: int) -> None:
    """Show no progress: the default of `convert`."""


def convert(
    gguf_path: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    bits: int | None = None,
    group_size: int = 64,
    shard_bytes: int = 5_000_000_000,
    expect_sha256: str | None = None,
    overwrite: bool = False,
    progress: Progress = _silent,
) -> Path:
    """Convert a GGUF file (Llama, Gemma 3) to a model directory, and return its absolute path.

    ``bits`` 4 or 8 quantises weight matrices in groups of ``group_size``; ``dtype`` (float32,
    float16, bfloat16) applies to everything else, scales included. ``out_dir`` appears once
    complete. ``progress(done, total)`` is called before the first tensor and after each. Raises
    `ConversionError` (unsupported content, a wrong checksum, a target in use),
    `InvalidOptionError`, `InvalidModelError` (broken GGUF), `ModelNotFoundError`,
    `ModelAccessError`, `UnsupportedModelError`.
    """
    storage = Storage(dtype, bits, group_size, shard_bytes)
    target = Path(os.path.realpath(Path(out_dir).expanduser()))

    # Cheap checks come before the checksum, which reads the complete file.
    try:
        check_target(target, overwrite=overwrite)
        source = GgufSource(Path(gguf_path).expanduser())
        check_architecture(source)
        record = _record(source, verified_sha256(source.path, expect_sha256), storage)
        with staged(target, overwrite=overwrite) as directory:
            _fill(directory, source, storage, record, progress)
    except ModelError:  # some are OSErrors too
        raise
    except OSError as error:
        raise ConversionError(f"Cannot write the converted model to {target}: {error}.") from error

    return target


def _fill(
    directory: Path,
    source: GgufSource,
    storage: Storage,
    record: dict[str, Any],
    progress: Progress,
) -> None:
    config = hf_config(source, storage.dtype)
    names = plan(source, parse_config(config, str(source.path)))

    write_tokenizer(source.metadata, directory)
    write_templates(source.metadata, directory)
    write_json(directory / "generation_config.json", generation_config(source.metadata))
    check_keys(source.metadata)  # after all reads of metadata, and before the long work
    write_weights(source, config, names, storage, directory, progress)
    write_json(directory / RECORD, record)

    if storage.bits:
        config["quantization"] = {"group_size": storage.group_size, "bits": storage.bits}
    # Last: without config.json the directory is not recognised as a model.
    write_json(directory / "config.json", config)


def _record(source: GgufSource, sha256: str, storage: Storage) -> dict[str, Any]:
    return {
        "converter_version": CONVERTER_VERSION,
        "source": {
            "file_name": source.path.name,
            "sha256": sha256,
            "size": source.path.stat().st_size,
        },
        "dtype": storage.dtype,
        "bits": storage.bits,
        "group_size": storage.group_size if storage.bits else None,
    }
