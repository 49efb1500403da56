"""What a model and its KV cache take in memory, from the header: before anything is allocated.

Of the cache this is exact (llama.cpp allocates it whole, at load); of the buffers of a pass it
counts the large ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.errors import OutOfMemoryError
from core.serving.host_memory import available_bytes
from core_llama_cpp.files import ModelFiles
from core_llama_cpp.ggml import GgmlDevice
from core_llama_cpp.header import ModelHeader

CELL_STEP = 256
"""llama.cpp rounds the number of cells up to a multiple of this."""
_FLOAT, _HALF = 4, 2
_WIDE_ROWS = 8  # rows of hidden size that one pass holds for each token, at least


@dataclass(frozen=True, slots=True)
class Estimate:
    """In bytes. ``per_cell``: of one position in the cache, and its place in the mask."""

    weights: int
    buffers: int
    per_cell: int

    @property
    def fixed(self) -> int:
        """What is taken whatever the context."""
        return self.weights + self.buffers

    def total(self, cells: int) -> int:
        """All of it, with a cache of so many positions."""
        return self.fixed + whole_cells(cells) * self.per_cell

    def cells(self, memory: int) -> int:
        """How many positions fit into so much memory beside the rest: a multiple of 256."""
        room = max(0, memory - self.fixed) // max(1, self.per_cell)
        return room // CELL_STEP * CELL_STEP

    def check(self, cells: int, memory: int | None, what: str) -> None:
        """Raise `OutOfMemoryError` where a cache of so many cells does not fit."""
        if memory is None or self.total(cells) <= memory:
            return
        fits = self.cells(memory)
        advice = f"At most {fits} fit" if fits else "Not even a small context fits"
        raise OutOfMemoryError(
            f"{what} needs about {_gib(self.total(cells))}: {_gib(self.weights)} of weights, "
            f"{_gib(self.total(cells) - self.fixed)} of KV cache for {whole_cells(cells)} tokens, "
            f"{_gib(self.buffers)} of buffers; {_gib(memory)} are free. {advice}; choose a "
            "smaller context_len, or free some memory."
        )


def estimate(
    header: ModelHeader, files: ModelFiles, outputs: int, n_ubatch: int, flash: bool
) -> Estimate:
    """``outputs``: rows of logits, in llama.cpp's graph and in its copy of them."""
    logits = 2 * outputs * header.vocab_size * _FLOAT
    activations = n_ubatch * header.hidden_size * _FLOAT * _WIDE_ROWS
    # One row of the mask for each token of a pass; without flash attention every head's scores.
    scores = _HALF if flash else _HALF + header.num_heads * _FLOAT
    return Estimate(files.size, logits + activations, header.cell_bytes + n_ubatch * scores)


def whole_cells(cells: int) -> int:
    """The number that llama.cpp allocates."""
    return -(-cells // CELL_STEP) * CELL_STEP


def free_memory(gpus: Sequence[GgmlDevice], gpu_layers: int) -> int | None:
    """Bytes for a model on these devices; None where nothing tells.

    With all layers on GPUs only their memory counts, with some of them the host's too.
    """
    if not gpus or gpu_layers == 0:
        return available_bytes()
    on_devices = sum(device.memory_free for device in gpus)
    if gpu_layers < 0:
        return on_devices or None
    host = available_bytes()
    return None if host is None else host + on_devices


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
