"""sparrow-decider: a small decision model in numpy, with its own weights."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any

from benchmarks.encoder_parts.subject import Rows, Spec


class Sparrow:
    """Its bundled model; without options."""

    def __init__(self, spec: Spec) -> None:
        library: Any = importlib.import_module("sparrow_decider")
        self._decider = library.Decider.load()

    def about(self) -> str:
        """Return the name of the model."""
        return str(self._decider.name)

    def label(self, texts: Sequence[str], labels: Sequence[str], question: str) -> Rows:
        """Ask one question about each text."""
        query = {"type": "choice", "instructions": question, "criteria": {k: k for k in labels}}
        rows = []
        for text in texts:
            _, names, _, shares = self._decider.probs(text, query)
            share = dict(zip(names, shares, strict=True))
            rows.append([math.log(max(float(share[label]), 1e-30)) for label in labels])
        return rows

    def embed(self, texts: Sequence[str]) -> Rows:
        """It has no vectors."""
        return []
