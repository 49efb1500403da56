"""How far one prompt's logits may move with what else runs: `ModelInfo.logit_tolerance`, by trial.

Where the same kernels compute a prompt in the same order, its logits stay the same to the bit. ggml
takes another kernel for passes of 64 rows, of eight with K-quants where its tiled products are on,
for a row alone behind 512 cells on several threads, on a BLAS and on a GPU. Then quantised models
round activations to 8 bits elsewhere, and logits moved by up to 1.5. The order is that of the cells
in the cache: where several rows decode and one of them ends, the others' next tokens take its
cells, in front of their own, and logits moved by up to 0.09. Matrices of floats take another kernel
for one row than for several, round nothing to 8 bits, and moved logits by up to 0.006. All of it
was seen on two real models on a CPU with AVX2.
"""

from __future__ import annotations

from core_llama_cpp.checkpoint.header import ModelHeader
from core_llama_cpp.context.session import SessionSettings
from core_llama_cpp.library import tiled_products

EXACT, FLOATS, ROUNDED = 1e-3, 0.02, 2.0
_TILE_ROWS, _SPLIT_CELLS = 64, 512  # of ggml's flash attention on a CPU
_FLOAT_TYPES = {0, 1, 30}  # ggml's numbers of F32, F16, BF16


def logit_tolerance(
    settings: SessionSettings, header: ModelHeader, slots: int, blas: bool
) -> float:
    """The tolerance of a model with so many rows that decode together."""
    lone_rows = settings.n_threads == 1 or settings.n_ctx < _SPLIT_CELLS
    small = settings.flash_attn is not False and settings.n_ubatch < _TILE_ROWS
    if blas or settings.offload or tiled_products() or not (small and lone_rows):
        return ROUNDED
    if _is_float(header):
        return FLOATS
    return EXACT if slots == 1 else ROUNDED


def _is_float(header: ModelHeader) -> bool:
    """True when all weights are floats; False of a model in several files, of which one is read."""
    tensors = header.file.tensors
    whole = header.metadata.get("split.count", 1) in (0, 1)
    return whole and bool(tensors) and all(each.ggml_type in _FLOAT_TYPES for each in tensors)
