"""A backend for tests of a cluster: `core.testing.FakeModel`, whose process a text may kill.

The best label is the one that a text names. "KILL" kills the process, "SLOW" takes a while, and
"WAIT" makes a file in the folder that FRAGILE_FOLDER names, and waits until one called "go" is
there. A model with a file "cannot" is not loaded, and one with "deadly" kills who loads it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import core
from core.testing import FakeBackend, FakeModel


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """The probability of each label; and what a text asks for besides."""
    if "KILL" in prompt:
        os.kill(os.getpid(), signal.SIGKILL)
    if "SLOW" in prompt:
        time.sleep(0.02)
    if "WAIT" in prompt:
        folder = Path(os.environ["FRAGILE_FOLDER"])
        (folder / f"waits-{os.getpid()}").touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


class FragileBackend(FakeBackend):
    """Loads what `core.testing.write_model` made."""

    def load_model(self, path: str | os.PathLike[str], config: core.LoadConfig) -> FakeModel:
        """A model; see above."""
        if (Path(path) / "cannot").exists():
            raise core.InvalidModelError("These weights are no weights. Fetch them again.")
        if (Path(path) / "deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load_model(path, config)


BACKEND = FragileBackend(lambda prompt: f"So {prompt}", labels=said, name="fragile")
