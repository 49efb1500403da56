"""Paths that look like the model under test, and hold something else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from core.models.files import is_address

_BYTES = 2**12


def imitations(model: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """Make them in a folder: each path, and what is wrong with it. Files keep their names."""
    kinds: dict[str, Callable[[Path], object]] = {
        "empty": Path.touch,
        "random": lambda file: file.write_bytes(Random(0).randbytes(_BYTES)),
        "secret": _secret,
        "nowhere": lambda file: file.symlink_to(file.with_name("nothing is here")),
    }
    if hasattr(os, "mkfifo"):  # Windows has none
        kinds["pipe"] = os.mkfifo
    for kind, make in kinds.items():
        path = _imitated(Path("model" if is_address(model) else model), folder / kind, make)
        if path is not None:
            yield path, _WORDS[kind]


_WORDS = {
    "empty": "the model's names with nothing in the files",
    "random": "the model's names with random bytes in the files",
    "secret": "the model's names on files without permission",
    "nowhere": "the model's names on links to nothing",
    "pipe": "the model's names on pipes without a writer",
}


def _imitated(model: Path, place: Path, make: Callable[[Path], object]) -> Path | None:
    """Return a path called as the model is; None where this system cannot make such files."""
    path = place / model.name
    names = sorted(os.listdir(model)) if model.is_dir() else []
    files = [path / name for name in names if not (model / name).is_dir()] or [path]
    try:
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            make(file)
    except (OSError, NotImplementedError):
        shutil.rmtree(place, ignore_errors=True)
        return None
    return path


def _secret(file: Path) -> None:
    file.write_bytes(b"secret")
    file.chmod(0)
