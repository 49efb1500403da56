"""What a session of llama.cpp is opened with: plain numbers, all of them decided before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ALL_LAYERS = -1
"""``gpu_layers`` that offloads the whole model, as llama.cpp's own ``n_gpu_layers`` does."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of one model and its one context; ``n_`` names are llama.cpp's own.

    ``n_ctx``: cells of the KV cache, shared by all sequences; ``n_seq_max``: sequences that may
    live in it at once; ``n_batch``: tokens of one ``llama_decode``; ``n_ubatch``: of one pass
    through the layers; ``n_threads``: for decoding and for prompts alike; ``gpu_layers``: -1
    all, 0 none; ``offload``: whether there is a GPU to put layers, cache and arithmetic on;
    ``swa_full``: whether layers with a sliding window keep every position; ``flash_attn``:
    None lets llama.cpp choose.
    """

    n_ctx: int
    n_seq_max: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    gpu_layers: int = 0
    offload: bool = False
    adapter_path: Path | None = None
    swa_full: bool = True
    flash_attn: bool | None = None
