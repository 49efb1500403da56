"""The memory of a model and its KV cache, and the context length that fits.

Both are estimated from the header, before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core import validate
from core.errors import InvalidModelError, InvalidOptionError, OutOfMemoryError
from core.kit.support import ASKED, Chosen
from core.options import LoadConfig
from core_llama_cpp.checkpoint.files import ModelFiles
from core_llama_cpp.checkpoint.header import ModelHeader
from core_llama_cpp.ggml import GgmlDevice
from core_runtime.machine import available_bytes

CELL_STEP = 256
"""llama.cpp rounds the number of cells up to a multiple of this."""
_FLOAT, _HALF = 4, 2
_WIDE_ROWS = 8  # rows of hidden size that one pass holds for each token, at least
_CELLS_A_SLOT = 2048  # a typical conversation; a slot may have more while others have less
_MOST = 2**18  # largest default: longer contexts are rare on one machine, and cells take memory
_SHARE = 2  # the defaults take at most one half of free memory


@dataclass(frozen=True, slots=True)
class Estimate:
    """The memory of a model in bytes.

    ``per_cell`` is the memory of one position in the cache and in the mask.
    """

    weights: int
    buffers: int
    per_cell: int

    @property
    def fixed(self) -> int:
        """The bytes that do not depend on the context."""
        return self.weights + self.buffers

    def total(self, cells: int) -> int:
        """Return the bytes of everything, with a cache of ``cells`` positions."""
        return self.fixed + whole_cells(cells) * self.per_cell

    def cells(self, memory: int) -> int:
        """Return the positions that fit in ``memory`` bytes with the rest: a multiple of 256."""
        room = max(0, memory - self.fixed) // max(1, self.per_cell)
        return room // CELL_STEP * CELL_STEP

    def check(self, cells: int, memory: int | None, what: str) -> None:
        """Raise `OutOfMemoryError` if a cache of ``cells`` positions does not fit."""
        if memory is None or self.total(cells) <= memory:
            return
        fits = self.cells(memory)
        advice = f"At most {fits} tokens fit" if fits else "Not even a small context fits"
        raise OutOfMemoryError(
            f"{what} needs about {_gib(self.total(cells))}: {_gib(self.weights)} of weights, "
            f"{_gib(self.total(cells) - self.fixed)} of KV cache for {whole_cells(cells)} tokens, "
            f"{_gib(self.buffers)} of buffers; {_gib(memory)} are free. {advice}: reduce "
            "context_len, or free some memory."
        )


def estimate(
    header: ModelHeader, files: ModelFiles, outputs: int, n_ubatch: int, flash: bool
) -> Estimate:
    """Estimate the memory of a model.

    ``outputs`` is the number of rows of logits; llama.cpp has them in its graph and in a copy.
    """
    logits = 2 * outputs * header.vocab_size * _FLOAT
    activations = n_ubatch * header.hidden_size * _FLOAT * _WIDE_ROWS
    # One row of the mask for each token of a pass; without flash attention every head's scores.
    scores = _HALF if flash else _HALF + header.num_heads * _FLOAT
    return Estimate(files.size, logits + activations, header.cell_bytes + n_ubatch * scores)


def whole_cells(cells: int) -> int:
    """Return the number of cells that llama.cpp allocates for ``cells``."""
    return -(-cells // CELL_STEP) * CELL_STEP


def free_memory(gpus: Sequence[GgmlDevice], gpu_layers: int) -> int | None:
    """Return the free bytes for a model on these devices; None if unknown.

    With all layers on GPUs only their memory counts, with some of them also the host's.
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

    ``length`` is the limit of one sequence. ``cells``, shared by all sequences, is a multiple of
    256 and at least ``length``.
    """

    length: Chosen[int]
    cells: Chosen[int]


def context_size(
    header: ModelHeader, config: LoadConfig, slots: int, needs: Estimate, memory: int | None
) -> ContextSize:
    """Choose length and cells; ``memory`` is the free bytes, None if unknown.

    Raises `InvalidOptionError` for a context beyond the model's or fewer cells than its length,
    `OutOfMemoryError` if the requested context, or the weights, do not fit.
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
            f"{header.path} has no context length "
            f"({header.architecture}.context_length). Convert the model again."
        )

    # A requested length is used, up to the model's.
    if config.context_len > own:
        raise InvalidOptionError(
            "context_len", config.context_len, f"at most {own}, the model's context length"
        )
    if config.context_len:
        return Chosen("context_len", config.context_len, ASKED)

    # The default is the model's, as far as the largest default and memory allow.
    fits = _most(needs, memory)
    if own > _MOST and (fits is None or fits >= _MOST):
        reason = f"the largest default; the model supports {own}"
        return Chosen("context_len", _MOST, reason)
    if fits is None or whole_cells(own) <= fits:
        return Chosen("context_len", own, "the model's context length")

    least = min(own, max(fits, CELL_STEP))
    reason = f"the cache of the model's {own} tokens would take more than half of free memory"
    return Chosen("context_len", least, reason)


def _cells(
    config: LoadConfig, length: int, slots: int, needs: Estimate, memory: int | None
) -> Chosen[int]:
    least = whole_cells(length)

    requested = config.options.get("cache_cells")
    if requested is not None:
        checked = validate.integer("cache_cells", requested, length, 2**31 - CELL_STEP)
        return Chosen("cache_cells", whole_cells(checked), ASKED)

    # The default: a typical conversation for each slot, and at least one full context.
    wanted = whole_cells(slots * min(length, _CELLS_A_SLOT))
    fits = _most(needs, memory)
    if wanted <= least:
        return Chosen("cache_cells", least, "one full context, shared by all slots")
    if fits is not None and wanted > fits:
        return Chosen("cache_cells", max(least, fits), "fits in half of free memory")

    reason = f"{min(length, _CELLS_A_SLOT)} tokens for each slot, and a full context for one"
    return Chosen("cache_cells", wanted, reason)


def _most(needs: Estimate, memory: int | None) -> int | None:
    """Return the most cells that defaults may take; None if free memory is unknown."""
    if memory is None:
        return None
    return needs.cells(needs.fixed + max(0, memory - needs.fixed) // _SHARE)
