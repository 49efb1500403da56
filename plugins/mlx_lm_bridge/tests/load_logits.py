"""The last logits that mlx-lm computes, in a process of its own: JSON in, JSON out.

Reads ``cases`` (directories), ``prompts`` (token ids) and ``repair`` from stdin.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from core_mlx_lm_bridge.child.rope_keys import repaired

mx: Any = import_module("mlx.core")
utils: Any = import_module("mlx_lm.utils")


def logits(directory: Path, prompts: list[list[int]], repair: bool) -> list[list[float]]:
    """One row of float32 logits for each prompt."""
    config = utils.load_config(directory)
    model, _ = utils.load_model(directory, model_config=repaired(config) if repair else None)
    model.set_dtype(mx.float32)  # as the reference was computed; the files hold bfloat16
    rows = [model(mx.array([prompt]))[0, -1] for prompt in prompts]
    return [row.tolist() for row in rows]


if __name__ == "__main__":
    task = json.load(sys.stdin)
    found = [logits(Path(case), task["prompts"], task["repair"]) for case in task["cases"]]
    json.dump(found, sys.stdout)
