"""What is chosen for the user at load, each with its reason; an option of the same name wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import mlx.core as mx

from core import validate
from core.options import LoadConfig
from core.serving.choices import ASKED, asked_integer, parallel_slots
from core.types import Choice

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}


@dataclass(frozen=True, slots=True)
class Choices:
    """One load's choices. Their values are texts, to be shown."""

    dtype: Choice
    dequantize: Choice
    parallel_slots: Choice
    prefill_chunk: Choice
    length_step: Choice

    @classmethod
    def of(cls, config: LoadConfig, on_gpu: bool) -> Self:
        """Choose. Raises `InvalidOptionError` for an option's wrong value."""
        return cls(
            _dtype(config, on_gpu),
            _dequantize(config, on_gpu),
            parallel_slots(config, on_gpu),
            _prefill_chunk(config, on_gpu),
            _length_step(config, on_gpu),
        )

    def shown(self, budget: Choice, quantised: bool) -> Sequence[Choice]:
        """Those that matter for this model; ``budget`` is chosen once it is in memory."""
        packed = (self.dequantize,) if quantised else ()
        return (
            *(self.dtype, *packed, budget, self.length_step),
            *(self.parallel_slots, self.prefill_chunk),
        )


def _dtype(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = config.options.get("dtype")
    if asked is not None:
        return Choice("dtype", validate.one_of("dtype", asked, tuple(DTYPES)), ASKED)
    if on_gpu:
        return Choice("dtype", "bfloat16", "half the memory of float32, with its range")
    return Choice("dtype", "float32", "MLX's low-precision products on CPU are far slower")


def _dequantize(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = config.options.get("dequantize")
    if asked is not None:
        return Choice("dequantize", str(validate.flag("dequantize", asked)), ASKED)
    if on_gpu:
        return Choice("dequantize", "False", "packed weights take less memory and bandwidth")
    return Choice("dequantize", "True", "MLX's products of packed weights are slow on a CPU")


def _prefill_chunk(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = asked_integer(config, "prefill_chunk", 1)
    if asked is not None:
        return asked
    chunk = "1024" if on_gpu else "256"
    return Choice("prefill_chunk", chunk, "a long prompt does not hold up the rows that decode")


def _length_step(config: LoadConfig, on_gpu: bool) -> Choice:
    asked = asked_integer(config, "length_step", 1)
    if asked is not None:
        return asked
    if on_gpu:  # cuDNN builds a graph for each shape, and MLX keeps buffers by their size
        return Choice("length_step", "16", "few shapes keep a GPU's caches of kernels small")
    return Choice("length_step", "1", "a CPU keeps nothing for a shape, and padding costs time")
