"""OpenVINO's own export of a model, made by optimum-intel, as the transformers runner runs a model.

It is exported on the first run; the result is cached. Matrices stay float32, or are rounded to int8
by row (``int8``); the arithmetic is that of ``precision``. In bfloat16 with one thread, and AMX,
OpenVINO 2026.4 divides by zero when it compiles the graph, and the process ends.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any

from benchmarks.classify_parts.run_transformers import Transformers


class OpenVinoExport(Transformers):
    """Options: those of `Transformers`, ``precision`` by OpenVINO's name, and ``int8``."""

    def about(self) -> str:
        """Versions and settings."""
        version, optimum = map(importlib.metadata.version, ("openvino", "optimum-intel"))
        batch, precision = self._options["batch"], self._options["precision"]
        return f"openvino {version}, optimum-intel {optimum}, batches of {batch}, {precision}"

    def _load(self, path: str) -> Any:
        settings = {
            "INFERENCE_PRECISION_HINT": self._options["precision"],
            "INFERENCE_NUM_THREADS": self._options["threads"],
            "NUM_STREAMS": 1,
        }
        library: Any = importlib.import_module("optimum.intel")
        target = _place(path, self._options["int8"])
        if not (target / "openvino_model.bin").is_file():
            exported = library.OVModelForCausalLM.from_pretrained(
                path,
                export=True,
                compile=False,
                use_cache=False,
                load_in_8bit=self._options["int8"],
            )
            exported.save_pretrained(target)
        return library.OVModelForCausalLM.from_pretrained(
            target, use_cache=False, ov_config=settings
        )


def _place(path: str, int8: bool) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "core"
    return cache / "openvino_export" / f"{Path(path).name}-{'int8' if int8 else 'float32'}"
