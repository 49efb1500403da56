"""The machine's rate of large matrix products, to which every share refers."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.classify_parts.runner import Answer, Spec

_REPEATS = 3


class Matmul:
    """MLX's product of two square matrices. Options: ``device``, ``dtype``, ``size``."""

    def __init__(self, spec: Spec) -> None:
        from core_mlx_native.cpu.blas import ensure_blas

        self._blas = ensure_blas().name  # before mlx
        mx: Any = importlib.import_module("mlx.core")
        options = {"device": "cpu", "dtype": "float32", "size": 2048, **spec.options}
        mx.set_default_device(getattr(mx, options["device"]))
        self._mx, self._size, self._dtype = mx, options["size"], options["dtype"]
        shape, dtype = (self._size, self._size), getattr(mx, self._dtype)
        self._a, self._b = (mx.random.normal(shape).astype(dtype) for _ in range(2))
        mx.eval(self._a, self._b)
        self._on_gpu = options["device"] != "cpu"

    def about(self) -> str:
        """Return the shapes of the product, and its library."""
        by = "" if self._on_gpu else f", {self._blas}"
        return f"{self._dtype} {self._size}x{self._size}x{self._size}{by}"

    def warm_up(self, prompts: Sequence[str]) -> None:
        """Run one round."""
        self.run(prompts)

    def run(self, prompts: Sequence[str]) -> Answer:
        """The best of a few products; the prompts do not matter."""
        return Answer(flops_per_second=max(self._once() for _ in range(_REPEATS)))

    def _once(self) -> float:
        products = 20 if self._on_gpu else 1  # a GPU needs a queue to be busy
        started = time.perf_counter()
        self._mx.eval([self._mx.matmul(self._a, self._b) for _ in range(products)])
        seconds = time.perf_counter() - started
        operations: int = products * 2 * self._size**3
        return operations / seconds
