"""The checked header of a GGUF model: the sizes needed to plan a load.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, "Standardized key-value pairs".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import InvalidModelError, UnsupportedModelError
from core.models.gguf import NO_LANGUAGE_MODEL, GgufHeader, GgufValue, SkippedArray, read_gguf

_F16_BYTES = 2  # llama.cpp's default type of keys and values
_NOT_RUN = (*NO_LANGUAGE_MODEL, "vocab")  # values of general.type
_MOST_LAYERS = 10_000
_ENDLESS = 2**31 - 1  # llama.cpp counts positions in 32 bits


@dataclass(frozen=True, slots=True)
class ModelHeader:
    """Sizes of one model; 0 if its header lacks them.

    ``cell_bytes``: bytes of one position of the KV cache in float16, all layers together.
    ``file``: the header of the (first) file, with its tensors.
    """

    path: Path
    architecture: str
    metadata: Mapping[str, GgufValue]
    context_length: int
    hidden_size: int
    num_layers: int
    num_heads: int
    vocab_size: int
    cell_bytes: int
    file: GgufHeader = field(default=GgufHeader(3, {}), repr=False, compare=False)

    def has(self, *keys: str) -> bool:
        """Return True if the header has one of these keys of its architecture."""
        return any(f"{self.architecture}.{key}" in self.metadata for key in keys)


def read_header(path: Path) -> ModelHeader:
    """Read the header of a model from its (first) file; no weights are read.

    Raises `InvalidModelError` for a broken file, `UnsupportedModelError` for a GGUF file that is
    not a language model, and the errors of `core.models.gguf.read_gguf`.
    """
    file = read_gguf(path, tensors=True)
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise InvalidModelError(
            f"{path} has no architecture (general.architecture). Download or convert it again."
        )

    kind = metadata.get("general.type")
    if kind in _NOT_RUN or architecture == "clip":
        raise UnsupportedModelError(f"{path} is not a language model, but {kind or 'clip'!r}.")

    reader = _KeyReader(path, architecture, metadata)
    return ModelHeader(
        path=path,
        architecture=architecture,
        metadata=metadata,
        context_length=min(reader.integer("context_length"), _ENDLESS),
        hidden_size=reader.integer("embedding_length"),
        num_layers=reader.layers,
        num_heads=max(reader.heads, default=0),
        vocab_size=reader.vocab_size(),
        cell_bytes=reader.cell_bytes(),
        file=file,
    )


class _KeyReader:
    """A reader with typed access to the keys of one architecture."""

    def __init__(self, path: Path, architecture: str, metadata: Mapping[str, GgufValue]) -> None:
        self.path, self.architecture, self.metadata = path, architecture, metadata
        self.layers = self.integer("block_count")
        if self.layers > _MOST_LAYERS:
            raise self.broken("block_count", self.layers)
        self.heads = self.per_layer("attention.head_count", 0)

    def integer(self, key: str, default: int = 0) -> int:
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.broken(key, value)
        return value

    def per_layer(self, key: str, default: int) -> list[int]:
        """Return the numbers of all layers, from one number for all or a list with one for each."""
        value = self.metadata.get(f"{self.architecture}.{key}", default)
        values = list(value) if isinstance(value, list) else [value] * self.layers
        numbers = [number for number in values if isinstance(number, int) and 0 <= number < 2**20]
        if len(numbers) != len(values) or len(values) < self.layers:
            raise self.broken(key, value)
        return numbers[: self.layers]

    def cell_bytes(self) -> int:
        most = max([1, *self.heads])
        kv_heads = self.per_layer("attention.head_count_kv", most)
        head_dim = self.integer("embedding_length") // most
        keys = self.integer("attention.key_length", head_dim)
        values = self.integer("attention.value_length", head_dim)
        return sum(kv_heads) * (keys + values) * _F16_BYTES

    def vocab_size(self) -> int:
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if isinstance(tokens, list | SkippedArray):
            return len(tokens)
        return self.integer("vocab_size")

    def broken(self, key: str, value: object) -> InvalidModelError:
        return InvalidModelError(
            f"{self.path} is broken: {self.architecture}.{key} is {value!r:.60}. "
            "Download or convert it again."
        )
