"""Checkpoints of a training: all that a killed run goes on from, in one file each.

``checkpoint-0000100.safetensors`` is written beside its final name and then renamed, so that it is
there whole or not at all, whatever the disk and the power do; the last two are kept. Its arrays are
``parameters/NAME``, ``optimiser/NAME/m`` and ``.../v``, and, where validation found one, the best
adapter as ``best/NAME``; its metadata are a JSON table with a format number. Data order, dropout
and the rate are functions of the seed and the step, so that no random state is left to be kept.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import mlx.core as mx

from core.errors import InvalidModelError, TrainingError
from core.system import outputs
from core_mlx_native.checkpoint.files import read_header
from core_mlx_native.checkpoint.saving import kind_of, save_tensors

FORMAT = 1
KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{7,})\.safetensors")
_KEY = "core.training"
_KIND = kind_of("a checkpoint", _KEY)


@dataclass(slots=True)
class Progress:
    """What a run has come to: the last step, its losses, and the best measurement so far.

    ``losses`` are (step, loss), ``measured`` (step, loss on validation); ``waited``: measurements
    since the best one.
    """

    step: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    measured: list[tuple[int, float]] = field(default_factory=list)
    best: float | None = None
    best_step: int = 0
    waited: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One file: its arrays by the kind and the name, and the rest."""

    path: Path
    progress: Progress
    arrays: Mapping[str, Mapping[str, mx.array]]


class Checkpoints:
    """The checkpoints in a directory. ``run``: what a resumed run must have been begun with."""

    def __init__(self, directory: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
        self.directory, self._run = Path(directory), dict(run)

    def paths(self) -> list[Path]:
        """The checkpoints, the last one last."""
        if not self.directory.is_dir():
            return []
        found = [(_NAME.fullmatch(path.name), path) for path in self.directory.iterdir()]
        return [path for _, path in sorted((int(name[1]), path) for name, path in found if name)]

    def last(self) -> str | None:
        """The path of the last one; None where there is none."""
        paths = self.paths()
        return str(paths[-1]) if paths else None

    def check_new(self) -> None:
        """Raise `TrainingError` where another run has left checkpoints."""
        last = self.last()
        if last is not None:
            raise TrainingError(
                f"{self.directory} has a training in it already, with the checkpoint {last}. Go on "
                "with it (resume=True), or give another directory.",
                checkpoint=last,
            )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other trainings out of the directory; it is made where it is not there.

        Raises `TrainingError` where one runs in it, OSError where it cannot be written.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._lock(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _lock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TrainingError(
                f"Another training writes to {self.directory} at this moment. Wait for its end, or "
                "give another directory."
            ) from None
        except OSError:  # a file system without locks, as some are that a network shares
            return

    def save(self, progress: Progress, arrays: Mapping[str, Mapping[str, mx.array]]) -> Path:
        """Write a checkpoint, then drop the oldest. Raises OSError; those before it stay then."""
        path = self._path(progress.step)
        tensors = {
            f"{kind}/{name}": array
            for kind, named in arrays.items()
            for name, array in named.items()
        }
        said = {"format": FORMAT, "run": self._run, "progress": asdict(progress)}
        save_tensors(path, tensors, _KIND, {_KEY: json.dumps(said)})
        for old in self.paths()[:-KEPT]:
            outputs.remove(old, _KIND)
        return path

    def drop(self, step: int) -> None:
        """Take the checkpoint of a step away, if there is one: it was seen to be of no use."""
        outputs.remove(self._path(step), _KIND)

    def _path(self, step: int) -> Path:
        return self.directory / f"checkpoint-{step:07d}.safetensors"

    def load(self) -> Checkpoint:
        """Read the last checkpoint; raises `TrainingError` for none, and for one of another run."""
        last = self.last()
        if last is None:
            raise TrainingError(
                f"{self.directory} has no checkpoint to go on from. Train without resume first."
            )
        path = Path(last)
        said = self._said(path)
        self._check_run(path, said["run"])
        arrays: dict[str, dict[str, mx.array]] = {}
        try:
            tensors = mx.load(str(path))
        except RuntimeError as error:
            raise TrainingError(f"{path} cannot be read: {error}.", checkpoint=last) from error
        assert isinstance(tensors, dict)
        for name, array in tensors.items():
            kind, _, rest = name.partition("/")
            arrays.setdefault(kind, {})[rest] = array
        mx.eval(arrays)
        return Checkpoint(path, _progress(said["progress"]), arrays)

    def _said(self, path: Path) -> dict[str, Any]:
        """The metadata. Raises `TrainingError` for another file, and for a newer format."""
        try:
            read_header([path])
            said: dict[str, Any] = json.loads(_metadata(path)[_KEY])
            version = int(said["format"])
        except (InvalidModelError, KeyError, TypeError, ValueError, OSError) as error:
            raise TrainingError(
                f"{path} is no checkpoint of a training, or it is broken: {error}. Take it away to "
                "go on from the one before it."
            ) from error
        if version > FORMAT:
            raise TrainingError(
                f"{path} is of format {version}, and this version reads formats up to {FORMAT}. "
                "Install a newer core-mlx-native."
            )
        return said

    def _check_run(self, path: Path, begun: Mapping[str, Any]) -> None:
        changed = [
            f"{name} is {_short(self._run.get(name))} and was {_short(begun.get(name))}"
            for name in self._run
            if begun.get(name) != json.loads(json.dumps(self._run[name]))
        ]
        if changed:
            raise TrainingError(
                f"{path} is of a training that was begun otherwise: {'; '.join(changed)}. Give "
                "what it was begun with, or another directory.",
                checkpoint=str(path),
            )


def _progress(said: Mapping[str, Any]) -> Progress:
    pairs = {
        name: [(int(step), float(loss)) for step, loss in said[name]]
        for name in ("losses", "measured")
    }
    return Progress(**{**said, **pairs})


def _metadata(path: Path) -> Mapping[str, str]:
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    found: Mapping[str, str] = header["__metadata__"]
    return found


def _short(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
