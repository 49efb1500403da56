"""The tensors of a GGUF file as float32 numpy arrays, each read when it is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core_runtime.checkpoint.arrays import Floats, TensorArrays
from core_runtime.checkpoint.config import ModelConfig
from core_runtime.gguf.names import CONVENTIONS, restored
from core_runtime.gguf.source import GgufSource
from core_runtime.gguf.tensors import plan


class GgufArrays(TensorArrays):
    """The tensors of a GGUF file, dequantised."""

    def __init__(self, source: GgufSource, raw: Mapping[str, Any], config: ModelConfig) -> None:
        super().__init__(config)
        self._source, self._raw = source, raw
        self._stored = plan(source, config)

    @property
    def rounded(self) -> bool:
        """See `TensorArrays`."""
        kinds = {item.ggml_type for item in self._source.tensors.values() if len(item.shape) == 2}
        return 0 not in kinds  # ggml's number of F32

    def _read(self, name: str) -> Floats:
        conventions = CONVENTIONS[self._source.metadata.architecture]
        return restored(name, self._source.array(self._stored[name]), conventions, self._raw)
