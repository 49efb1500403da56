"""How much a run may ask of the model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """``seconds`` is what one sweeping check may take; ``least`` passes it makes in any case.

    ``seed`` chooses the generated inputs. ``deep``: no sweep is cut, and inputs are generated for
    all of the ``seconds``.
    """

    seconds: float = 4.0
    least: int = 12
    seed: int = 0
    deep: bool = False
