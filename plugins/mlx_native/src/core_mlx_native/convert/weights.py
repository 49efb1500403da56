"""The weights of a conversion: every tensor is checked, cast or quantised, and saved.

The quantised layout is MLX's affine one: ``.weight`` (uint32, packed), ``.scales``, ``.biases``.
They are saved in safetensors files of limited size, with the index that transformers and MLX read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import validate
from core.errors import ConversionError, InvalidOptionError
from core_mlx_native.convert.staging import write_json
from core_mlx_native.cpu.blas import ensure_blas
from core_runtime.gguf.names import CONVENTIONS, restored
from core_runtime.gguf.source import GgufSource

if TYPE_CHECKING:
    import mlx.core as mx

Progress = Callable[[int, int], None]


DTYPES = ("float32", "float16", "bfloat16")


class Shards:
    """Safetensors files of at most ``limit`` bytes (a single tensor may exceed it).

    Tensors are added one by one.
    """

    def __init__(self, directory: Path, limit: int) -> None:
        self._directory, self._limit = directory, limit
        self._files: list[list[str]] = []
        self._pending: dict[str, mx.array] = {}
        self._total = 0

    def add(self, name: str, tensor: mx.array) -> None:
        """Evaluate a tensor and add it to the current shard, which is saved when full."""
        import mlx.core as mx

        mx.eval(tensor)  # now, so that its inputs are freed
        if self._pending and self._size() + tensor.nbytes > self._limit:
            self._flush()
        self._pending[name] = tensor

    def finish(self) -> None:
        """Save the rest, rename the files, and write the index if there are several."""
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
        except RuntimeError as error:  # MLX's error for a full disk
            raise ConversionError(f"Cannot write {path}: {error}.") from error
        self._pending.clear()

    def _part(self, number: int) -> Path:
        return self._directory / f"part-{number:05}.safetensors"

    def _size(self) -> int:
        return sum(tensor.nbytes for tensor in self._pending.values())


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage format of weights. A wrong value raises `InvalidOptionError`.

    ``bits`` 4 or 8 quantises matrices in groups of ``group_size``, None keeps them in ``dtype``;
    files have up to ``shard_bytes``.
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


def write_weights(
    source: GgufSource,
    config: Mapping[str, Any],
    names: Mapping[str, str],
    storage: Storage,
    directory: Path,
    progress: Progress,
) -> None:
    """Save every tensor of ``names``; ``progress(done, total)`` counts tensors, from 0 on.

    Raises `ConversionError` for a tensor with values outside the dtype's range.
    """
    ensure_blas()  # for a model loaded later: it must precede the import of mlx below
    shards = Shards(directory, storage.shard_bytes)
    conventions = CONVENTIONS[source.metadata.architecture]

    progress(0, len(names))
    for done, (hf, gguf) in enumerate(names.items(), start=1):
        array = restored(hf, source.array(gguf), conventions, config)
        for name, tensor in _stored(hf, array, storage):
            shards.add(name, tensor)
        progress(done, len(names))

    shards.finish()


def _stored(name: str, array: Any, storage: Storage) -> Iterator[tuple[str, mx.array]]:
    import mlx.core as mx

    tensor = mx.array(array).astype(getattr(mx, storage.dtype))
    if not mx.isfinite(tensor).all().item():
        raise ConversionError(
            f"Tensor {name} does not fit {storage.dtype}: values up to {abs(array).max():.6g} "
            "overflow, or it contains NaN. Convert to bfloat16 or float32; if that fails too, "
            "check the source file."
        )

    if not storage.bits or tensor.ndim != 2 or tensor.shape[-1] % storage.group_size:
        yield name, tensor
        return

    base = name.removesuffix(".weight")
    parts = mx.quantize(tensor, group_size=storage.group_size, bits=storage.bits)
    for kind, part in zip(("weight", "scales", "biases"), parts, strict=True):
        yield f"{base}.{kind}", part
