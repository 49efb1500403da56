"""Logits of prompts, straight from a decoder."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from core_mlx_native.network.decoder import Decoder
from core_mlx_native.network.prefill import prefill


def last_logits(decoder: Decoder, prompts: Sequence[Sequence[int]]) -> mx.array:
    """Return next-token logits at each prompt's last real token: float32 [B, vocabulary]."""
    ends = [len(prompt) - 1 for prompt in prompts]
    return decoder.logits(prefill(decoder, prompts).hidden_at(ends))
