"""How long a context may be, and how many cells the cache that all sequences share gets.

llama.cpp allocates the cache whole when a context is made, so its size is decided here: every
sequence may be as long as the context, and all together have the cells.
"""

from __future__ import annotations

from dataclasses import dataclass

from core import validate
from core.errors import InvalidModelError, InvalidOptionError
from core.options import LoadConfig
from core.serving.choices import ASKED
from core.types import Choice
from core_llama_cpp.estimate import CELL_STEP, Estimate, whole_cells
from core_llama_cpp.header import ModelHeader

_CELLS_A_SLOT = 2048  # an ordinary conversation; a slot may have more while others have less
_SHARE = 2  # of free memory the defaults take at most one half


@dataclass(frozen=True, slots=True)
class ContextSize:
    """In tokens, each with its reason. Cells are a multiple of 256, never fewer than the context.

    ``length``: the most that one sequence may have.
    """

    length: Choice
    cells: Choice


def context_size(
    header: ModelHeader, config: LoadConfig, slots: int, needs: Estimate, memory: int | None
) -> ContextSize:
    """Choose both; ``memory``: bytes that are free, None where nothing tells.

    Raises `InvalidOptionError` for a context beyond the model's own or fewer cells than it has,
    `OutOfMemoryError` when what was asked for, or the weights, do not fit.
    """
    length = _length(header, config, needs, memory)
    cells = _cells(config, int(length.value), slots, needs, memory)
    needs.check(int(cells.value), memory, str(header.path))
    return ContextSize(length, cells)


def _length(header: ModelHeader, config: LoadConfig, needs: Estimate, memory: int | None) -> Choice:
    own = header.context_length
    if not own:
        raise InvalidModelError(
            f"{header.path} does not say how long its context is "
            f"({header.architecture}.context_length). Convert it again."
        )
    if config.context_len > own:
        raise InvalidOptionError(
            "context_len", config.context_len, f"at most {own}, what the model was made for"
        )
    if config.context_len:
        return Choice("context_len", str(config.context_len), ASKED)
    fits = _most(needs, memory)
    if fits is None or whole_cells(own) <= fits:
        return Choice("context_len", str(own), "the model's own")
    least = min(own, max(fits, CELL_STEP))
    reason = f"the cache of the model's own, {own}, would take more than half of free memory"
    return Choice("context_len", str(least), reason)


def _cells(
    config: LoadConfig, length: int, slots: int, needs: Estimate, memory: int | None
) -> Choice:
    least = whole_cells(length)
    asked = config.options.get("cache_cells")
    if asked is not None:
        checked = validate.integer("cache_cells", asked, length, 2**31 - CELL_STEP)
        return Choice("cache_cells", str(whole_cells(checked)), ASKED)
    wanted = whole_cells(slots * min(length, _CELLS_A_SLOT))
    fits = _most(needs, memory)
    if wanted <= least:
        return Choice("cache_cells", str(least), "one whole context, shared by all slots")
    if fits is not None and wanted > fits:
        return Choice("cache_cells", str(max(least, fits)), "what half of free memory holds")
    reason = f"{min(length, _CELLS_A_SLOT)} tokens for each slot, and a whole context for one"
    return Choice("cache_cells", str(wanted), reason)


def _most(needs: Estimate, memory: int | None) -> int | None:
    """The cells that defaults may take."""
    if memory is None:
        return None
    return needs.cells(needs.fixed + max(0, memory - needs.fixed) // _SHARE)
