"""Notes on an adapter's training in its ``adapter_config.json``; other readers ignore them.

With them, `infer-cli lora eval` uses the labels as they were learned.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import CoreError
from core.models.files import read_json_object
from core.training import TrainConfig

_KEY = "core_training"
_ASKED = ("template", "labels", "label_prefix")
_FIELDS = (*_ASKED, "seed", "iterations", "learning_rate")


def notes_of(config: TrainConfig) -> dict[str, Any]:
    """Return the keys to write."""
    return {_KEY: {name: getattr(config, name) for name in _FIELDS}}


def read_notes(adapter: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return the label options in an adapter's directory; empty if it has none."""
    try:
        stored = read_json_object(Path(adapter) / "adapter_config.json").get(_KEY)
        table = stored if isinstance(stored, dict) else {}
        noted = {name: table[name] for name in _ASKED if name in table}
        TrainConfig(**noted)  # the file may contain anything
        return noted
    except CoreError:
        return {}  # the load reports the problem
