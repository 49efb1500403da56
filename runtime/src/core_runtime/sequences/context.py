"""The memory of a model and its KV cache, and the context length that fits.

Both are estimated before anything is allocated.
"""

from __future__ import annotations

from dataclasses import dataclass

from core import validate
from core.errors import InvalidOptionError, OutOfMemoryError
from core.kit.support import ASKED, Chosen
from core.options import LoadConfig

CELL_STEP = 256
"""The number of cells is a multiple of this, as llama.cpp rounds it."""
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


def whole_cells(cells: int) -> int:
    """Return ``cells``, rounded up to a multiple of `CELL_STEP`."""
    return -(-cells // CELL_STEP) * CELL_STEP


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
    own: int, where: str, config: LoadConfig, slots: int, needs: Estimate, memory: int | None
) -> ContextSize:
    """Choose length and cells; ``memory`` is the free bytes, None if unknown.

    ``own`` is the model's context length, ``where`` names its file in errors.

    Raises `InvalidOptionError` for a context beyond the model's or fewer cells than its length,
    `OutOfMemoryError` if the requested context, or the weights, do not fit.
    """
    length = _length(own, config, needs, memory)
    cells = _cells(config, length.value, slots, needs, memory)
    needs.check(cells.value, memory, where)
    return ContextSize(length, cells)


def _length(own: int, config: LoadConfig, needs: Estimate, memory: int | None) -> Chosen[int]:
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
