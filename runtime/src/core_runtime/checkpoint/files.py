"""The safetensors files of a directory and their headers; reads no tensor data.

Imports no array library. Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from core.errors import InvalidModelError, ModelError
from core.models.files import open_model_file
from core_runtime.checkpoint.names import plain_name
from core_runtime.checkpoint.own_files import chosen_files

Shape = tuple[int, ...]
Header = dict[str, tuple[str, Shape]]  # dtype and shape by tensor name
Plain = Callable[[str], str | None]
"""A function from a tensor's stored name to its plain one; None if it is not to be read."""


def tensor_files(directory: Path) -> list[Path]:
    """List the files that hold the weights (`core.models.weight_files`).

    Raises `InvalidModelError` without any weights, or for a broken index.
    """
    return [directory / name for name in chosen_files(directory).own]


def read_header(files: list[Path], plain_name: Plain = plain_name) -> Header:
    """Return all tensors of the text model, by their plain names. Raises `InvalidModelError`."""
    tensors: Header = {}
    for path in files:
        for name, entry in _header(path).items():
            plain = plain_name(name)
            if plain in tensors:
                raise InvalidModelError(
                    f"{path}: the tensor {name!r} occurs twice in the model. Move the file that "
                    "does not belong to the model out of the directory."
                )
            if plain is not None:
                tensors[plain] = entry
    return tensors


def query_rows(directory: Path) -> int | None:
    """Return the number of rows of the first layer's query matrix; None if it is not found.

    Quantisation does not change it. Problems with the files are reported by the load.
    """
    try:
        shape = read_header(tensor_files(directory))["model.layers.0.self_attn.q_proj.weight"][1]
    except (ModelError, KeyError):
        return None
    return shape[0] if shape else None


def guess_qwen(directory: Path) -> Mapping[str, str]:
    """Return the ``model_type`` of a checkpoint whose config.json lacks it: Qwen 3 has query norms.

    Some exports of Qwen omit the key. Other models fail later, because their tensors do not fit.
    """
    names = read_header(tensor_files(directory))
    has_norms = any(name.endswith("self_attn.q_norm.weight") for name in names)
    return {"model_type": "qwen3" if has_norms else "qwen2"}


def _header(path: Path) -> Header:
    """Read the header of one file; the library checks that the data is complete."""
    with open_model_file(path):
        pass  # the library waits on a pipe, and reports an unreadable file as missing
    try:
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: (str(part.get_dtype()), tuple(part.get_shape()))
                for name, part in slices.items()
            }
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidModelError(
            f"{path} is not a complete safetensors file ({error}). Download or convert it again."
        ) from error
