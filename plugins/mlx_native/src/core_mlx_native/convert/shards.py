"""safetensors files of limited size, with the index that transformers and MLX read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConversionError
from core_mlx_native.convert.files import write_json

if TYPE_CHECKING:
    import mlx.core as mx


class Shards:
    """Tensors go in one by one; each file has at most ``limit`` bytes (a tensor may exceed it)."""

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
