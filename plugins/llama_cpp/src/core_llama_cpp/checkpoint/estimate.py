"""The memory of a model and its KV cache, and the length of context that it leaves room for.

Both are estimated from the header, before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core import validate
from core.errors import InvalidModelError, InvalidOptionError, OutOfMemoryError
from core.options import LoadConfig
from core.support import ASKED, Chosen
from core_llama_cpp.checkpoint.files import ModelFiles
from core_llama_cpp.checkpoint.header import ModelHeader
from core_llama_cpp.ggml import GgmlDevice
from core_runtime.machine import available_bytes

CELL_STEP = 256
"""llama.cpp rounds the number of cells up to a multiple of this."""
_FLOAT, _HALF = 4, 2
_WIDE_ROWS = 8  # rows of hidden size that one pass holds for each token, at least
_CELLS_A_SLOT = 2048  # an ordinary conversation; a slot may have more while others have less
_MOST = 2**18  # of a default: no model of one machine is read further, and its cells take memory
_SHARE = 2  # of free memory the defaults take at most one half


@dataclass(frozen=True, slots=True)
class Estimate:
    """The memory of a model in bytes.

    ``per_cell`` is that of one position in the cache and its place in the mask.
    """

    weights: int
    buffers: int
    per_cell: int

    @property
    def fixed(self) -> int:
        """The bytes that are taken whatever the context."""
        return self.weights + self.buffers

    def total(self, cells: int) -> int:
        """The bytes of everything, with a cache of so many positions."""
        return self.fixed + whole_cells(cells) * self.per_cell

    def cells(self, memory: int) -> int:
        """The positions that ``memory`` bytes hold beside the rest: a multiple of 256."""
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
    """Estimate the memory of a model.

    ``outputs`` is the number of rows of logits, in llama.cpp's graph and in its copy of them.
    """
    logits = 2 * outputs * header.vocab_size * _FLOAT
    activations = n_ubatch * header.hidden_size * _FLOAT * _WIDE_ROWS
    # One row of the mask for each token of a pass; without flash attention every head's scores.
    scores = _HALF if flash else _HALF + header.num_heads * _FLOAT
    return Estimate(files.size, logits + activations, header.cell_bytes + n_ubatch * scores)


def whole_cells(cells: int) -> int:
    """The number of cells that llama.cpp allocates for so many."""
    return -(-cells // CELL_STEP) * CELL_STEP


def free_memory(gpus: Sequence[GgmlDevice], gpu_layers: int) -> int | None:
    """The free bytes for a model on these devices; None where nothing tells.

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


@dataclass(frozen=True, slots=True)
class ContextSize:
    """The measures of a context in tokens, each with its reason.

    ``length`` is the most that one sequence may have. ``cells``, shared by all sequences, are a
    multiple of 256 and never fewer than that.
    """

    length: Chosen[int]
    cells: Chosen[int]


def context_size(
    header: ModelHeader, config: LoadConfig, slots: int, needs: Estimate, memory: int | None
) -> ContextSize:
    """Choose length and cells; ``memory`` is the free bytes, None where nothing tells.

    Raises `InvalidOptionError` for a context beyond the model's own or fewer cells than it has,
    `OutOfMemoryError` when what was asked for, or the weights, do not fit.
    """
    length = _length(header, config, needs, memory)
    cells = _cells(config, length.value, slots, needs, memory)
    needs.check(cells.value, memory, str(header.path))
    return ContextSize(length, cells)


def _length(
    header: ModelHeader, config: LoadConfig, needs: Estimate, memory: int | None
) -> Chosen[int]:
    own = header.context_length
    if not own:
        raise InvalidModelError(
            f"{header.path} does not say how long its context is "
            f"({header.architecture}.context_length). Convert it again."
        )

    # What is asked for is taken, up to the model's own.
    if config.context_len > own:
        raise InvalidOptionError(
            "context_len", config.context_len, f"at most {own}, what the model was made for"
        )
    if config.context_len:
        return Chosen("context_len", config.context_len, ASKED)

    # The default is the model's own, as far as the greatest default and memory allow.
    fits = _most(needs, memory)
    if own > _MOST and (fits is None or fits >= _MOST):
        reason = f"of the model's own, {own}, no more is taken unless it is asked for"
        return Chosen("context_len", _MOST, reason)
    if fits is None or whole_cells(own) <= fits:
        return Chosen("context_len", own, "the model's own")

    least = min(own, max(fits, CELL_STEP))
    reason = f"the cache of the model's own, {own}, would take more than half of free memory"
    return Chosen("context_len", least, reason)


def _cells(
    config: LoadConfig, length: int, slots: int, needs: Estimate, memory: int | None
) -> Chosen[int]:
    least = whole_cells(length)

    asked = config.options.get("cache_cells")
    if asked is not None:
        checked = validate.integer("cache_cells", asked, length, 2**31 - CELL_STEP)
        return Chosen("cache_cells", whole_cells(checked), ASKED)

    # The default: an ordinary conversation for each slot, and a whole context at least.
    wanted = whole_cells(slots * min(length, _CELLS_A_SLOT))
    fits = _most(needs, memory)
    if wanted <= least:
        return Chosen("cache_cells", least, "one whole context, shared by all slots")
    if fits is not None and wanted > fits:
        return Chosen("cache_cells", max(least, fits), "what half of free memory holds")

    reason = f"{min(length, _CELLS_A_SLOT)} tokens for each slot, and a whole context for one"
    return Chosen("cache_cells", wanted, reason)


def _most(needs: Estimate, memory: int | None) -> int | None:
    """The most cells that defaults may take; None where nothing tells."""
    if memory is None:
        return None
    return needs.cells(needs.fixed + max(0, memory - needs.fixed) // _SHARE)
