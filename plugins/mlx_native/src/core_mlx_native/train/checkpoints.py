"""Training checkpoints, each a single file from which a killed run resumes.

``checkpoint-0000100.safetensors`` is written to a temporary name and then renamed, so it is atomic
even on a crash; the last two are kept. Its arrays are ``parameters/NAME``, ``optimiser/NAME/m`` and
``.../v``, and, if validation found one, the best adapter as ``best/NAME``; its metadata is a JSON
table with a format number. Data order, dropout and learning rate are functions of seed and step, so
random state need not be saved. The complete contents are checked before a run resumes: the file may
have been changed.
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
from safetensors import SafetensorError, safe_open

from core.errors import TrainingError
from core.system import outputs
from core.system.fields import Fields, integer_in, items_in, number_in
from core.system.limited_files import FileKind, Refused, check_format, json_value, open_regular
from core_mlx_native.checkpoint.saving import kind_of, save_tensors
from core_mlx_native.to_python import number

FORMAT = 1
READING = FileKind(
    "a checkpoint of a training", TrainingError, "Remove it to resume from the one before it."
)
KEPT = 2
_LARGEST = 3.5e38  # a loss is a float32
_NAME = re.compile(r"checkpoint-(\d{7,})\.safetensors")
_KEY = "core.training"
_KIND = kind_of("a checkpoint", _KEY)


@dataclass(slots=True)
class RunState:
    """The state of a run: the last step, the losses, and the best measurement so far.

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
    """One checkpoint file: its arrays by kind and name, and its progress."""

    path: Path
    progress: RunState
    arrays: Mapping[str, Mapping[str, mx.array]]


class Checkpoints:
    """The checkpoints in a directory. ``run``: the values that a resumed run must match."""

    def __init__(self, directory: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
        self.directory, self._run = Path(directory), dict(run)

    def paths(self) -> list[Path]:
        """Return the paths of the checkpoints, in order of steps."""
        if not self.directory.is_dir():
            return []
        matches = [(_NAME.fullmatch(path.name), path) for path in self.directory.iterdir()]
        return [path for _, path in sorted((int(name[1]), path) for name, path in matches if name)]

    def last(self) -> str | None:
        """Return the path of the last one; None without checkpoints."""
        paths = self.paths()
        return str(paths[-1]) if paths else None

    def check_new(self) -> None:
        """Raise `TrainingError` if another run has left checkpoints."""
        last = self.last()
        if last is not None:
            raise TrainingError(
                f"{self.directory} already contains a training, with checkpoint {last}. Resume it "
                "(resume=True), or choose another directory.",
                checkpoint=last,
            )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other trainings, creating it if necessary.

        Raises `TrainingError` if one is running in it, OSError if it is not writable.
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
                f"Another running training is writing to {self.directory}. Wait for it to finish, "
                "or choose another directory."
            ) from None
        except OSError:  # a file system without locks, as some network file systems
            return

    def save(self, progress: RunState, arrays: Mapping[str, Mapping[str, mx.array]]) -> Path:
        """Write a checkpoint, then drop the oldest. Raises OSError and keeps the earlier ones."""
        path = self._path(progress.step)
        tensors = {
            f"{kind}/{name}": array
            for kind, named in arrays.items()
            for name, array in named.items()
        }
        facts = {"format": FORMAT, "run": self._run, "progress": asdict(progress)}
        save_tensors(path, tensors, _KIND, {_KEY: json.dumps(facts)})
        for old in self.paths()[:-KEPT]:
            outputs.remove(old, _KIND)
        return path

    def drop(self, step: int) -> None:
        """Remove a step's checkpoint, if there is one, because it turned out to be unusable."""
        outputs.remove(self._path(step), _KIND)

    def _path(self, step: int) -> Path:
        return self.directory / f"checkpoint-{step:07d}.safetensors"

    def load(self, expected: Mapping[str, Mapping[str, mx.array]]) -> Checkpoint:
        """Read the last checkpoint, with arrays like the ``expected`` ones by kind and name.

        Raises `TrainingError` without a checkpoint, for one of another run or model, and for a
        broken one.
        """
        last = self.last()
        if last is None:
            raise TrainingError(
                f"{self.directory} has no checkpoint to resume from. Train without resume first."
            )
        path = Path(last)
        with READING.errors(str(path)):
            facts = _facts(path, _size(expected) + READING.most_bytes)
            progress = _progress(facts.table("progress"))
            if path != self._path(progress.step):
                raise Refused(f"it is from step {progress.step}, but its name has another step")
            self._check_run(path, facts.table("run").values)
            arrays = _arrays(path, expected)
            if number(arrays["optimiser"]["step"]) != progress.step:
                raise Refused(
                    f"it is from step {progress.step}, but its optimiser state is from another"
                )
            return Checkpoint(path, progress, arrays)

    def _check_run(self, path: Path, begun: Mapping[object, object]) -> None:
        changed = [
            f"{name} changed from {_short(begun.get(name))} to {_short(self._run.get(name))}"
            for name in self._run
            if begun.get(name) != json.loads(json.dumps(self._run[name]))
        ]
        if changed:
            raise TrainingError(
                f"Cannot resume {path}: {'; '.join(changed)}. Restore the original values, or "
                "choose another directory.",
                checkpoint=str(path),
            )


def _size(arrays: Mapping[str, Mapping[str, mx.array]]) -> int:
    """Return the size of arrays in a file, in bytes."""
    return sum(array.nbytes for named in arrays.values() for array in named.values())


def _facts(path: Path, most_bytes: int) -> Fields:
    """Return the metadata. Raises `Refused` for a bad file, `TrainingError` for a newer format."""
    try:
        with open_regular(path) as opened:  # the library would wait on a pipe, and maps any size
            if os.fstat(opened.fileno()).st_size > most_bytes:
                raise Refused(f"it is larger than {most_bytes} bytes")
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(_KEY)
    except (OSError, SafetensorError, ValueError) as error:
        raise Refused(f"it cannot be read ({error})") from error
    if text is None:
        raise Refused(f"it has no {_KEY} in its metadata")
    facts = Fields(json_value(text)).only(("format", "run", "progress"))
    check_format(facts.values.get("format"), FORMAT)
    return facts


def _progress(data: Fields) -> RunState:
    data.only(RunState.__dataclass_fields__)
    step = data.integer("step", 1)
    return RunState(
        step,
        _losses(data, "losses", step),
        _losses(data, "measured", step),
        data.number("best", -_LARGEST, _LARGEST) if data.given("best") else None,
        data.integer("best_step", 0, step),
        data.integer("waited", 0, step),
    )


def _losses(data: Fields, name: str, last: int) -> list[tuple[int, float]]:
    """Return pairs of a step and its loss."""
    losses = []
    for value, place in data.items(name):
        pair = [*items_in(value, place)]
        if len(pair) != 2:
            raise Refused(f"{place} is not a pair of a step and a loss")
        step = integer_in(*pair[0], 1, last)
        losses.append((step, number_in(*pair[1], -_LARGEST, _LARGEST)))
    return losses


def _arrays(
    path: Path, expected: Mapping[str, Mapping[str, mx.array]]
) -> dict[str, dict[str, mx.array]]:
    """Return the arrays by kind and name, like the expected ones; a kind ``best`` may be absent."""
    wanted = {
        f"{kind}/{name}": _kind(it)
        for kind, named in expected.items()
        for name, it in named.items()
    }
    try:
        tensors = mx.load(str(path))  # reads no values yet
    except RuntimeError as error:
        raise Refused(f"it cannot be read ({error})") from error
    assert isinstance(tensors, dict)
    if not any(name.startswith("best/") for name in tensors):
        wanted = {name: kind for name, kind in wanted.items() if not name.startswith("best/")}
    kinds = {name: _kind(array) for name, array in tensors.items()}
    if odd := sorted(kinds.items() ^ wanted.items())[:4]:
        raise TrainingError(
            f"{path} does not fit this training: its parameters differ "
            f"({', '.join(f'{name} {kind}' for name, kind in odd)}). Use the model and adapter "
            "settings that it was made with, or choose another directory."
        )
    arrays: dict[str, dict[str, mx.array]] = {}
    for name, array in tensors.items():
        if not bool(mx.isfinite(array).all()):
            raise Refused(f"{name} contains NaN or infinity")
        kind, _, rest = name.partition("/")
        arrays.setdefault(kind, {})[rest] = array
    return arrays


def _kind(array: mx.array) -> str:
    return f"{array.dtype} {[*array.shape]}"


def _short(value: object) -> str:
    shown = json.dumps(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"
