"""The safetensors files of a directory and what their headers say, without reading any data.

Imports no MLX. Format: https://huggingface.co/docs/safetensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from core.errors import InvalidModelError, ModelError
from core.models.files import open_model_file
from core_mlx_native.checkpoint.names import plain_name
from core_mlx_native.checkpoint.own_files import chosen_files

Shape = tuple[int, ...]
Header = dict[str, tuple[str, Shape]]  # dtype and shape by tensor name


def tensor_files(directory: Path) -> list[Path]:
    """List the files that hold the weights (`core.models.weight_files`).

    Raises `InvalidModelError` when there are none, or the index is broken.
    """
    return [directory / name for name in chosen_files(directory).own]


def read_header(files: list[Path]) -> Header:
    """All tensors of the text model, by their plain names. Raises `InvalidModelError`."""
    found: Header = {}
    for path in files:
        for name, entry in _header(path).items():
            plain = plain_name(name)
            if plain in found:
                raise InvalidModelError(
                    f"{path} holds the tensor {name!r}, and so does another place of the same "
                    "model. Move the file that does not belong to it out of the directory."
                )
            if plain is not None:
                found[plain] = entry
    return found


def query_rows(directory: Path) -> int | None:
    """The number of rows of the first layer's query matrix; None where none is found.

    Packing does not change it. What is wrong with the files is for the load to say.
    """
    try:
        shape = read_header(tensor_files(directory))["model.layers.0.self_attn.q_proj.weight"][1]
    except (ModelError, KeyError):
        return None
    return shape[0] if shape else None


def guess_qwen(directory: Path) -> Mapping[str, str]:
    """The ``model_type`` of a checkpoint whose config.json has none: Qwen 3 has query norms.

    Some exports of Qwen leave the key out. Another model fails later, for its tensors do not fit.
    """
    names = read_header(tensor_files(directory))
    has_norms = any(name.endswith("self_attn.q_norm.weight") for name in names)
    return {"model_type": "qwen3" if has_norms else "qwen2"}


def _header(path: Path) -> Header:
    """Read the header of one file; the library checks that the data is all there."""
    with open_model_file(path):
        pass  # the library waits for a pipe, and says of a file without permission that it is gone
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
