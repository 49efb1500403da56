"""Tolerance of one prompt's logits to what else runs (`ModelInfo.logit_tolerance`), as measured.

If the same kernels compute a prompt in the same order, its logits are equal to the bit. ggml uses
another kernel for passes of 64 rows, or of eight with K-quants and tiled products, for a single row
after 512 cells on several threads, on a BLAS and on a GPU. Quantised models then round activations
to 8 bits at other places, and logits moved by up to 1.5. The order is that of the cells in the
cache: if several rows decode and one of them ends, the next tokens of the others take its cells,
before their own, and logits moved by up to 0.09. Float matrices use another kernel for one row than
for several, round nothing to 8 bits, and moved logits by up to 0.006. All of this was measured with
two real models on a CPU with AVX2.
"""

from __future__ import annotations

from core_llama_cpp.checkpoint.header import ModelHeader
from core_llama_cpp.library import tiled_products
from core_llama_cpp.session import SessionSettings

EXACT, FLOATS, ROUNDED = 1e-3, 0.02, 2.0
_TILE_ROWS, _SPLIT_CELLS = 64, 512  # of ggml's flash attention on a CPU
_FLOAT_TYPES = {0, 1, 30}  # ggml's numbers of F32, F16, BF16


def logit_tolerance(
    settings: SessionSettings, header: ModelHeader, slots: int, blas: bool
) -> float:
    """Return the tolerance of a model; ``slots``: rows that decode concurrently."""
    lone_rows = settings.n_threads == 1 or settings.n_ctx < _SPLIT_CELLS
    small = settings.flash_attn is not False and settings.n_ubatch < _TILE_ROWS
    if blas or settings.offload or tiled_products() or not (small and lone_rows):
        return ROUNDED
    if _is_float(header):
        return FLOATS
    return EXACT if slots == 1 else ROUNDED


def _is_float(header: ModelHeader) -> bool:
    """Return True if all weights are floats.

    False for a model in several files, of which only one is read.
    """
    tensors = header.file.tensors
    whole = header.metadata.get("split.count", 1) in (0, 1)
    return whole and bool(tensors) and all(tensor.ggml_type in _FLOAT_TYPES for tensor in tensors)
