"""The weights of a conversion: every tensor accounted for, cast or quantised, and saved.

The quantised layout is MLX's affine one: ``.weight`` (uint32, packed), ``.scales``, ``.biases``.
What is saved are safetensors files of limited size, with the index that transformers and MLX read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import validate
from core.errors import ConversionError, InvalidOptionError
from core_mlx_native.checkpoint.config import ModelConfig
from core_mlx_native.checkpoint.files import Shape
from core_mlx_native.checkpoint.tensors import expected_tensors
from core_mlx_native.convert.names import CONVENTIONS, DERIVED, hf_name, restored
from core_mlx_native.convert.source import Source
from core_mlx_native.convert.staging import write_json
from core_mlx_native.cpu.blas import ensure_blas

if TYPE_CHECKING:
    import mlx.core as mx

Progress = Callable[[int, int], None]


DTYPES = ("float32", "float16", "bfloat16")


class Shards:
    """Safetensors files of at most ``limit`` bytes (a single tensor may exceed it).

    Tensors go in one by one.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory, self._limit = directory, limit
        self._files: list[list[str]] = []
        self._pending: dict[str, mx.array] = {}
        self._total = 0

    def add(self, name: str, tensor: mx.array) -> None:
        """Evaluate a tensor and keep it for the current shard, which may be full and saved."""
        import mlx.core as mx

        mx.eval(tensor)  # now, so that what it was made of is freed
        if self._pending and self._size() + tensor.nbytes > self._limit:
            self._flush()
        self._pending[name] = tensor

    def finish(self) -> None:
        """Save the rest, give the files their names, and write the index if there are several."""
        self._flush()
        if len(self._files) == 1:
            self._part(1).rename(self._directory / "model.safetensors")
            return

        index = {}
        for number, names in enumerate(self._files, start=1):
            file_name = f"model-{number:05}-of-{len(self._files):05}.safetensors"
            self._part(number).rename(self._directory / file_name)
            index.update(dict.fromkeys(names, file_name))

        content = {"metadata": {"total_size": self._total}, "weight_map": index}
        write_json(self._directory / "model.safetensors.index.json", content)

    def _flush(self) -> None:
        import mlx.core as mx

        self._files.append(list(self._pending))
        self._total += self._size()
        path = str(self._part(len(self._files)))
        try:
            mx.save_safetensors(path, self._pending, metadata={"format": "mlx"})
        except RuntimeError as error:  # MLX's word for a full disk
            raise ConversionError(f"{path} could not be written: {error}.") from error
        self._pending.clear()

    def _part(self, number: int) -> Path:
        return self._directory / f"part-{number:05}.safetensors"

    def _size(self) -> int:
        return sum(tensor.nbytes for tensor in self._pending.values())


@dataclass(frozen=True, slots=True)
class Storage:
    """The way weights are stored. A wrong value raises `InvalidOptionError`.

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
    """The GGUF name of each transformers tensor, in the order of the file.

    Raises `ConversionError` that lists what is unknown, missing, or of another shape.
    """
    conventions = CONVENTIONS[source.metadata.architecture]
    names = {name: hf_name(name, conventions) for name in source.tensors if name not in DERIVED}
    found = {hf: name for name, hf in names.items() if hf is not None}
    unknown = [f"{name} is not known" for name, hf in names.items() if hf is None]

    # Every tensor must be known, there, and of the shape that the config asks for.
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
    """Save every tensor of ``names``; ``progress(done, total)`` counts tensors, from 0 on.

    Raises `ConversionError` for a tensor with values that the dtype cannot hold.
    """
    ensure_blas()  # for a model loaded later: mlx, imported below, would come too early for it
    shards = Shards(directory, storage.shard_bytes)
    conventions = CONVENTIONS[source.metadata.architecture]

    progress(0, len(names))
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
