"""A backend for tests of a cluster: `core.testing.FakeModel`, whose process a text may kill.

The best label is the one that a text names. "KILL" kills the process. "WAIT" makes a file in the
folder that FRAGILE_FOLDER names, called after process and node, and waits until one called "go" is
there. "UNEQUAL" makes the first process that meets it wait so, and the others make "go" behind 100
rows. A model with a file "cannot" is not loaded, and one with "deadly" kills who loads it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import core
from core.testing import FakeBackend, FakeEncoder, FakeModel

_rows = 0


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    """The probability of each label; and what a text asks for besides."""
    if "KILL" in prompt:
        os.kill(os.getpid(), signal.SIGKILL)
    if "WAIT" in prompt:
        _wait()
    if "UNEQUAL" in prompt:
        _unequal()
    counts = [prompt.count(label) + 0.5 for label in labels]
    return {label: count / sum(counts) for label, count in zip(labels, counts, strict=True)}


def _wait() -> None:
    import ray

    folder = Path(os.environ["FRAGILE_FOLDER"])
    node = ray.get_runtime_context().get_node_id()
    (folder / f"waits-{os.getpid()}-{node}").touch()
    while not (folder / "go").exists():
        time.sleep(0.01)


def _unequal() -> None:
    global _rows
    folder = Path(os.environ["FRAGILE_FOLDER"])
    with suppress(FileExistsError):
        (folder / "slow").symlink_to(str(os.getpid()))  # made by one process alone
    if os.readlink(folder / "slow") == str(os.getpid()):
        _wait()
        return
    _rows += 1
    if _rows == 100:
        (folder / "go").touch()


class FragileBackend(FakeBackend):
    """Loads what `core.testing.write_model` made."""

    def load_model(
        self, path: str | os.PathLike[str], config: core.LoadConfig
    ) -> FakeModel | FakeEncoder:
        """A model; see above."""
        if (Path(path) / "cannot").exists():
            raise core.InvalidModelError("These weights are no weights. Fetch them again.")
        if (Path(path) / "deadly").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load_model(path, config)


BACKEND = FragileBackend(lambda prompt: f"So {prompt}", labels=said, name="fragile")
