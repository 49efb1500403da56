"""Two adapters of the model under test, and one of another model: the author's, or made here.

An author gives them as a folder with the entries ``one``, ``two`` and ``wrong``, each a file or a
directory as the backend reads it: by the setting ``adapters``, or as the folder ``adapters`` in the
model's directory. Otherwise they are made where the model's format allows it (`adapter_files`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from core_conformance.checking import adapter_files
from core_conformance.checking.check import testable
from core_conformance.checking.subject import Subject

_NONE = (
    "no adapter of this model is known: give a folder with the adapters one, two and wrong, by "
    "adapters = ... in [tool.core-conformance] or as the folder adapters in the model's directory"
)


@dataclass(frozen=True, slots=True)
class Adapters:
    """Two that change what the model says, each otherwise, and one of another model."""

    one: str
    two: str
    wrong: str


@contextmanager
def adapters(subject: Subject) -> Iterator[Adapters]:
    """Yield the adapters while the block runs; raise `NotTestable` if the model cannot have any."""
    given = subject.adapters or os.path.join(subject.path, "adapters")
    if os.path.isdir(given) and (entries := _entries(given)) is not None:
        yield entries
        return

    with tempfile.TemporaryDirectory(prefix="core-adapters-") as folder:
        testable(bool(adapter_files.maps_of(subject.path)), _NONE)
        made = [
            adapter_files.write(subject.path, Path(folder, name), seed, extra)
            for name, seed, extra in (("one", 1, 0), ("two", 2, 0), ("wrong", 3, 32))
        ]
        yield Adapters(*map(str, made))


def _entries(folder: str) -> Adapters | None:
    found = {os.path.splitext(name)[0]: os.path.join(folder, name) for name in os.listdir(folder)}
    if {"one", "two", "wrong"} <= found.keys():
        return Adapters(found["one"], found["two"], found["wrong"])
    return None
