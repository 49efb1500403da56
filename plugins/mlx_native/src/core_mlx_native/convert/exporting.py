"""An adapter written again in the layout of another program: mlx-lm's or PEFT's."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from core.errors import ConversionError, ModelError, OutputError
from core_mlx_native.checkpoint.config import load_config
from core_mlx_native.cpu.blas import ensure_blas


def export_directory(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    layout: Literal["mlx-lm", "peft"],
    *,
    overwrite: bool = False,
) -> Path:
    """Write an adapter in a layout, and return the directory's absolute path.

    ``model`` is the directory that it belongs to. Raises `ConversionError` (the directory holds
    something that is not to be replaced, or cannot be written) and `ModelError`.
    """
    ensure_blas()  # for a model loaded later: mlx, imported below, would come too early for it
    from core_mlx_native.adapters.files import read_adapter, write_adapter

    target = Path(os.path.realpath(Path(out_dir).expanduser()))
    _check_target(target, overwrite)
    config = load_config(Path(model).expanduser())
    stored = read_adapter(adapter, config)
    if os.path.realpath(stored.directory) == str(target):
        raise ConversionError(f"{target} is the adapter itself. Name another directory.")
    try:
        write_adapter(target, stored.layers, config, layout)
    except ModelError:
        raise
    except OutputError as error:
        raise ConversionError(str(error)) from None
    except OSError as error:
        raise ConversionError(f"{target} could not be written: {error}.") from error
    return target


def _check_target(target: Path, overwrite: bool) -> None:
    from core_mlx_native.adapters.files import CONFIG, refuse_foreign

    if target.exists() and not target.is_dir():
        raise ConversionError(f"{target} is a file. Name a directory.")
    names = os.listdir(target) if target.exists() else []
    if names and not (overwrite and CONFIG in names):
        raise ConversionError(
            f"{target} is not empty. Name another directory, or replace the adapter that is "
            "in it (--overwrite, overwrite=True)."
        )
    try:
        refuse_foreign(target)
    except OutputError as error:
        raise ConversionError(str(error)) from None
