"""What a session of llama.cpp is opened with: plain numbers, all of them decided before."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MAX_SEQUENCES = 256
"""``LLAMA_MAX_SEQ``: a context cannot hold more sequences."""
CLASSIFY_SEQUENCES = 64
"""Sequences beside those of the slots: the prompts and labels that are read in one batch."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of one model and its one context; ``n_`` names are llama.cpp's own.

    ``n_ctx``: cells of the KV cache, which all sequences share (``kv_unified``); a multiple of
    256. ``n_seq_max``: sequences that may live in it at once, and rows whose logits one
    ``llama_decode`` may ask for (``n_outputs_max``; more abort the process). ``n_batch``: tokens
    of one ``llama_decode``; ``n_ubatch``: of one pass through the layers. ``n_threads``: for
    prompts and for decoding alike. ``gpu_layers``: layers on the GPU, -1 all, 0 none.
    ``offload``: whether the cache and the arithmetic go there too; without it, no GPU is used at
    all. ``adapter``: a LoRA adapter in GGUF. ``flash_attn``: None lets llama.cpp choose.
    """

    n_ctx: int
    n_seq_max: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    gpu_layers: int = 0
    offload: bool = False
    adapter: Path | None = None
    flash_attn: bool | None = None

    @property
    def n_outputs_max(self) -> int:
        """Rows of logits of one batch: no buffer of ``n_ctx`` by vocabulary is ever made."""
        return self.n_seq_max
