"""Export of an adapter to the layout of mlx-lm or PEFT."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from core.errors import ConversionError, ModelError, OutputError
from core_mlx_native.cpu.blas import ensure_blas
from core_runtime.checkpoint.config import load_config


def export_directory(
    model: str | os.PathLike[str],
    adapter: str | os.PathLike[str],
    out_dir: str | os.PathLike[str],
    layout: Literal["mlx-lm", "peft"],
    *,
    overwrite: bool = False,
) -> Path:
    """Write an adapter in a layout, and return the directory's absolute path.

    ``model`` is the directory of its model. Raises `ConversionError` (the directory has contents
    that must not be replaced, or cannot be written) and `ModelError`.
    """
    ensure_blas()  # for a model loaded later: it must precede the import of mlx below
    from core_mlx_native.adapters.files import read_adapter, write_adapter

    target = Path(os.path.realpath(Path(out_dir).expanduser()))
    _check_target(target, overwrite)
    config = load_config(Path(model).expanduser())
    stored = read_adapter(adapter, config)
    if os.path.realpath(stored.directory) == str(target):
        raise ConversionError(f"{target} is the adapter itself. Choose another directory.")
    try:
        write_adapter(target, stored.layers, config, layout)
    except ModelError:
        raise
    except OutputError as error:
        raise ConversionError(str(error)) from None
    except OSError as error:
        raise ConversionError(f"Cannot write {target}: {error}.") from error
    return target


def _check_target(target: Path, overwrite: bool) -> None:
    from core_mlx_native.adapters.files import CONFIG, refuse_foreign

    if target.exists() and not target.is_dir():
        raise ConversionError(f"{target} is a file. Choose a directory.")
    names = os.listdir(target) if target.exists() else []
    if names and not (overwrite and CONFIG in names):
        raise ConversionError(
            f"{target} is not empty. Choose another directory, or replace the adapter in it "
            "(--overwrite, overwrite=True)."
        )
    try:
        refuse_foreign(target)
    except OutputError as error:
        raise ConversionError(str(error)) from None
