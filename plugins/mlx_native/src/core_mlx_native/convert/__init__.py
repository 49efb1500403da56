"""Conversion of a GGUF file to the directory layout of transformers and MLX."""

from __future__ import annotations

from core_mlx_native.convert.pipeline import CONVERTER_VERSION, convert
from core_mlx_native.convert.source import GEMMA3, SMOLLM2, KnownSource, gguf_of
from core_runtime.checkpoint.own_files import RECORD

__all__ = [
    "CONVERTER_VERSION",
    "GEMMA3",
    "RECORD",
    "SMOLLM2",
    "KnownSource",
    "convert",
    "gguf_of",
]
