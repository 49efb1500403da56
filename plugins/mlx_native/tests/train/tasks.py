"""A task that a tiny model can learn: texts whose first letter decides their label."""

from __future__ import annotations

from typing import Any

import core


def labelled(count: int = 12) -> list[core.TrainingExample]:
    """Texts whose first letter decides their label."""
    kinds = {"a": "no", "b": "ab"}
    return [
        core.TrainingExample(text=f"{first}{'xyzw'[place % 4] * (1 + place % 3)}", label=label)
        for place in range(count)
        for first, label in kinds.items()
    ]


def config(**changes: Any) -> core.TrainConfig:
    """Options that learn it in few steps."""
    return core.TrainConfig(
        **{
            "rank": 4,
            "learning_rate": 2e-2,
            "scale": 4.0,
            "iterations": 12,
            "template": "{text}:",
            **changes,
        }
    )
