"""The weights of a conversion: every tensor accounted for, cast or quantised, and saved.

The quantised layout is MLX's affine one: ``.weight`` (uint32, packed), ``.scales``, ``.biases``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import validate
from core.errors import ConversionError, InvalidOptionError
from core_mlx_native.blas import ensure_blas
from core_mlx_native.checkpoint import Shape
from core_mlx_native.config import ModelConfig
from core_mlx_native.convert.names import CONVENTIONS, DERIVED, hf_name, restored
from core_mlx_native.convert.shards import Shards
from core_mlx_native.convert.source import Source
from core_mlx_native.layout import expected_tensors

if TYPE_CHECKING:
    import mlx.core as mx

Progress = Callable[[int, int], None]


DTYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True)
class Storage:
    """How weights are stored. A wrong value raises `InvalidOptionError`.

    ``bits`` 4 or 8 quantises matrices in groups of ``group_size``, None keeps them in ``dtype``;
    a file holds up to ``shard_bytes``.
    """

    dtype: str
    bits: int | None
    group_size: int
    shard_bytes: int

    def __post_init__(self) -> None:
        validate.one_of("dtype", self.dtype, DTYPES)
        validate.integer("shard_bytes", self.shard_bytes, 1)
        if self.bits not in (None, 4, 8):
            raise InvalidOptionError("bits", self.bits, "4, 8 or None")
        if self.group_size not in (32, 64, 128):
            raise InvalidOptionError("group_size", self.group_size, "32, 64 or 128")


def plan(source: Source, config: ModelConfig) -> dict[str, str]:
    """GGUF name of each transformers tensor, in the order of the file.

    Raises `ConversionError` that lists what is unknown, missing, or of another shape.
    """
    conventions = CONVENTIONS[source.metadata.architecture]
    names = {name: hf_name(name, conventions) for name in source.tensors if name not in DERIVED}
    found = {hf: name for name, hf in names.items() if hf is not None}
    unknown = [f"{name} is not known" for name, hf in names.items() if hf is None]
    shapes = {hf: source.shape(name) for hf, name in found.items()}
    problems = unknown + _differences(shapes, expected_tensors(config))
    if problems:
        more = f"; and {len(problems) - 12} more" if len(problems) > 12 else ""
        raise source.metadata.error(
            f"its tensors are not those of a {config.model_type} model: "
            f"{'; '.join(problems[:12])}{more}"
        )
    return found


def write_weights(
    source: Source,
    config: Mapping[str, Any],
    names: Mapping[str, str],
    storage: Storage,
    directory: Path,
    progress: Progress,
) -> None:
    """Save every tensor of ``names``; ``progress(done, total)`` counts tensors.

    Raises `ConversionError` for a tensor with values that the dtype cannot hold.
    """
    ensure_blas()  # for a model loaded later: mlx, imported below, would come too early for it
    shards = Shards(directory, storage.shard_bytes)
    conventions = CONVENTIONS[source.metadata.architecture]
    for done, (hf, gguf) in enumerate(names.items(), start=1):
        array = restored(hf, source.array(gguf), conventions, config)
        for name, tensor in _stored(hf, array, storage):
            shards.add(name, tensor)
        progress(done, len(names))
    shards.finish()


def _differences(found: Mapping[str, Shape], expected: Mapping[str, Shape]) -> list[str]:
    return [
        *(f"{name} is missing" for name in expected if name not in found),
        *(f"{name} is not part of it" for name in found if name not in expected),
        *(
            f"{name} has shape {list(found[name])}, not {list(shape)}"
            for name, shape in expected.items()
            if name in found and found[name] != shape
        ),
    ]


def _stored(name: str, array: Any, storage: Storage) -> Iterator[tuple[str, mx.array]]:
    import mlx.core as mx

    tensor = mx.array(array).astype(getattr(mx, storage.dtype))
    if not mx.isfinite(tensor).all().item():
        raise ConversionError(
            f"Tensor {name} does not fit {storage.dtype}: values as large as "
            f"{abs(array).max():.6g} become infinite, or it holds NaN. "
            "Convert to bfloat16 or float32, and check the source if that fails too."
        )
    if not storage.bits or tensor.ndim != 2 or tensor.shape[-1] % storage.group_size:
        yield name, tensor
        return
    base = name.removesuffix(".weight")
    parts = mx.quantize(tensor, group_size=storage.group_size, bits=storage.bits)
    for kind, part in zip(("weight", "scales", "biases"), parts, strict=True):
        yield f"{base}.{kind}", part
