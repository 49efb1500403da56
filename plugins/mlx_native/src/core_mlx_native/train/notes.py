"""What an adapter was trained for, in its ``adapter_config.json``; other readers pass over it.

So that `infer-cli lora eval` asks the labels as they were learned.
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
    """The keys to write."""
    return {_KEY: {name: getattr(config, name) for name in _FIELDS}}


def read_notes(adapter: str | os.PathLike[str]) -> Mapping[str, Any]:
    """How labels are asked, as an adapter's directory says it; nothing where it does not."""
    try:
        said = read_json_object(Path(adapter) / "adapter_config.json").get(_KEY)
        table = said if isinstance(said, dict) else {}
        noted = {name: table[name] for name in _ASKED if name in table}
        TrainConfig(**noted)  # what is written there may be anything
        return noted
    except CoreError:
        return {}  # the load tells what is wrong with it
