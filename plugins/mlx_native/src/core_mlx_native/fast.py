"""The fast paths of classification, each of which can be switched off."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from core import validate
from core.errors import InvalidOptionError
from core.options import LoadConfig


@dataclass(frozen=True, slots=True)
class FastPaths:
    """What is done faster than by the plain masked forward pass, with the same results.

    ``prefix``: tokens that prompts begin with alike are computed once. ``sorted``: prompts of
    similar length run together. ``last_layer``: the last layer runs at the positions that are
    read alone. ``label_rows``: with ``labels_only``, the head runs for the labels' tokens alone.
    ``host_math``: on a CPU, numpy computes activations and softmax. ``lanes``: on a CPU, each core
    runs a part of a micro-batch of its own. ``overlap``: on a GPU, a
    micro-batch is queued while the one before runs.
    """

    prefix: bool = True
    sorted: bool = True
    last_layer: bool = True
    label_rows: bool = True
    host_math: bool = True
    lanes: bool = True
    overlap: bool = True

    @classmethod
    def of(cls, config: LoadConfig) -> Self:
        """All of them, but for those that the option ``without`` names."""
        asked = config.options.get("without", ())
        without = validate.texts("without", (asked,) if isinstance(asked, str) else asked)
        known = tuple(field.name for field in fields(cls))
        for name in without:
            if name not in known:
                raise InvalidOptionError("without", name, f"one of {', '.join(known)}")
        return cls(**dict.fromkeys(without, False))
