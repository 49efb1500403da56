"""Model directories with something wrong in one file, loaded and used as far as they let one."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from .mutations import mutated
from .tiny_models import checkpoint, copied
from .using import outcome


def prepare(place: Path, variant: str) -> Callable[[int], str]:
    """The case's number is the seed of what is wrong; ``variant``: of `CHECKPOINTS`."""
    source = checkpoint(place, variant)
    assert outcome(source, "mlx_cpu") == "loaded"

    def case(number: int) -> str:
        dice = random.Random(f"{variant} {number}")
        directory = copied(source, place / "mutated")
        file = dice.choice(sorted(directory.iterdir()))
        file.write_bytes(mutated(file.read_bytes(), file.name, dice))
        return outcome(directory, "mlx_cpu")

    return case
