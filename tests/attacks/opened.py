"""Loads the model that an attack is made on, the same for each backend."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import core
from core_conformance.checking.adapters import write as write_adapter

from .tiny_models import checkpoint, gguf
from .using import use_all

ROOT = Path(__file__).parents[2]
FAKE_WORKER = ROOT / "plugins" / "mlx_lm_bridge" / "tests" / "fake_worker.py"
REAL = {"smollm2": "smollm2-135m-instruct", "gemma3": "gemma-3-270m"}  # as llama.cpp's files
WARM = 4  # as many as a case may have open at once, dropped ones included
LEAST: dict[str, dict[str, object]] = {
    "llama_cpp": {"n_threads": 1},
    "mlx_cpu": {},
    "mlx_lm": {"python": sys.executable, "silence_timeout": 30.0},
}
SMALL: dict[str, dict[str, Any]] = {
    "llama_cpp": {
        "context_len": 64,
        "parallel_slots": 3,
        "options": {"n_batch": 32, "cache_cells": 256},
    },
    "mlx_cpu": {"parallel_slots": 3, "options": {"prefill_chunk": 16, "token_budget": 64}},
    "mlx_lm": {},
}


class Opener:
    """``variant``: a backend's name, or that of a real model, which llama.cpp reads.

    ``tiny`` is always a tiny model; ``adapter`` one that fits it, or none; ``least``: options that
    every load takes. The worker of ``mlx_lm`` has a script instead of a model.
    """

    def __init__(self, place: Path, variant: str) -> None:
        self.is_real = variant in REAL
        self.backend = "llama_cpp" if self.is_real else variant
        self.least = LEAST[self.backend]
        self.adapter = place / "nothing"
        if self.backend == "llama_cpp":
            self.tiny, self.adapter = gguf(place), gguf(place, "lora")
        else:
            self.tiny = checkpoint(place, "gemma3")
            self.adapter = write_adapter(str(self.tiny), place / "adapter", seed=1)
        if self.backend == "mlx_lm":
            from core_mlx_lm_bridge import loading

            loading.WORKER = FAKE_WORKER
        self.path = _real(REAL[variant]) if self.is_real else self.tiny

    def warm(self) -> None:
        """Use some models at once, so that what a process keeps is there before a case."""
        with ExitStack() as opened:
            for _ in range(WARM):
                model = opened.enter_context(self.load())
                use_all(model)
                if self.backend == "mlx_cpu":
                    model.classify([f"ab {'no ' * (i % 9)}" for i in range(200)])

    def load(self, **options: Any) -> Any:
        """A model with little room, so that every limit is near."""
        small = SMALL[self.backend]
        own = {**self.least, **small.get("options", {})}
        given = {"backend": self.backend, **small, **options, "options": own}
        return core.load_model(self.path, **given)


def _real(name: str) -> Path:
    command = [sys.executable, str(ROOT / "tools" / "fetch_models.py"), "--json", name]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return Path(found[name]["gguf"])
