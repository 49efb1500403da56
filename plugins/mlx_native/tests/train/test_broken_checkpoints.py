"""A checkpoint that was changed by hand is refused, with the place, and no run resumes from it."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import core

from .tasks import config, labelled

if TYPE_CHECKING:
    from .conftest import Load

Change = Callable[[dict[str, Any]], object]
NAME = "checkpoint-0000002.safetensors"
ASKED = config(iterations=2, save_every=2, validation=labelled(2), validate_every=1, patience=9)


@pytest.fixture
def run(load: Load, tmp_path: Path) -> Path:
    """A directory with the checkpoint of a run's second step."""
    assert len([*load().train(labelled(), replace(ASKED, directory=tmp_path))]) == 2
    return tmp_path


def _resumed(load: Load, run: Path) -> list[core.TrainStep]:
    return [*load().train(labelled(), replace(ASKED, directory=run, resume=True, iterations=3))]


def _changed(file: Path, change: Change) -> None:
    """Change the header of a file, and leave its numbers."""
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def fact(name: str, value: object, table: str = "progress") -> Change:
    """Set a fact of the metadata."""

    def change(header: dict[str, Any]) -> None:
        facts = json.loads(header["__metadata__"]["core.training"])
        (facts[table] if table else facts)[name] = value
        header["__metadata__"]["core.training"] = json.dumps(facts)

    return change


def renamed(old: str, new: str) -> Change:
    """Give an array another name."""
    return lambda header: header.update({new: header.pop(old)})


A = "parameters/model.layers.0.self_attn.q_proj.lora_a"
CHANGES: dict[str, tuple[Change, str]] = {
    "no metadata": (lambda header: header.pop("__metadata__"), "has no core.training"),
    "no JSON": (
        lambda header: header["__metadata__"].update({"core.training": "{"}),
        "it is not JSON",
    ),
    "no format": (fact("format", None, ""), "its format is None, not a number from 1"),
    "no run": (fact("run", 3, ""), "run is 3, not a table"),
    "more": (fact("more", 3, ""), "it has the unknown key 'more'"),
    "no progress": (fact("progress", [], ""), r"progress is \[\], not a table"),
    "another key": (fact("more", 3), "progress has the unknown key 'more'"),
    "no step": (fact("step", "2"), "progress.step is '2', not a whole number"),
    "another step": (fact("step", 7), "it is from step 7, but its name has another step"),
    "step of a bool": (fact("step", True), "progress.step is True"),
    "a huge step": (fact("step", 10**400), "progress.step is 1000"),
    "no losses": (fact("losses", None), "progress.losses is None, not a list"),
    "no pairs": (fact("losses", [1, 2]), r"progress.losses\[0\] is 1, not a list"),
    "no pair": (fact("losses", [[1]]), r"progress.losses\[0\] is not a pair"),
    "a loss of NaN": (fact("losses", [[1, math.nan]]), r"progress.losses\[0\]\[1\] is nan"),
    "a huge loss": (fact("measured", [[1, 1e300]]), r"progress.measured\[0\]\[1\] is 1e\+300"),
    "a loss to come": (fact("losses", [[3, 1.0]]), r"losses\[0\]\[0\] is 3, not .* from 1 to 2"),
    "best of NaN": (fact("best", math.nan), "progress.best is nan"),
    "best step": (fact("best_step", -1), "progress.best_step is -1"),
    "waited": (fact("waited", {}), r"progress.waited is \{\}"),
    "no parameter": (
        renamed(A, "parameters/x"),
        "does not fit this training: its parameters differ",
    ),
    "no moment": (
        renamed(f"{A}/m".replace("parameters", "optimiser"), "optimiser/x"),
        "does not fit this training",
    ),
    "an unknown kind": (renamed("optimiser/step", "else/step"), "optimiser/step .*uint64"),
    "another shape": (
        lambda header: header[A].update(shape=header[A]["shape"][::-1]),
        "does not fit this training",
    ),
    "another type": (lambda header: header[A].update(dtype="I32"), "int32"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_changed_checkpoint_is_refused_with_its_place(load: Load, run: Path, how: str) -> None:
    change, reason = CHANGES[how]
    _changed(run / NAME, change)
    with pytest.raises(core.TrainingError, match=f"{NAME} .*{reason}"):
        _resumed(load, run)


def _write(file: Path, name: str, number: bytes) -> None:
    """Write over the first number of an array."""
    data = file.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    at = 8 + length + json.loads(data[8 : 8 + length])[name]["data_offsets"][0]
    file.write_bytes(data[:at] + number + data[at + len(number) :])


@pytest.mark.parametrize(
    ("name", "number", "reason"),
    [
        (A, struct.pack("<f", math.nan), f"{A} contains NaN or infinity. Remove it to resume"),
        (f"optimiser/{A[11:]}/v", struct.pack("<f", math.inf), "/v contains NaN or infinity"),
        (f"best/{A[11:]}", struct.pack("<f", -math.inf), "best/.* contains NaN or infinity"),
        (
            "optimiser/step",
            struct.pack("<Q", 99),
            "from step 2, but its optimiser state is from another",
        ),
    ],
)
def test_odd_numbers_are_refused(
    load: Load, run: Path, name: str, number: bytes, reason: str
) -> None:
    _write(run / NAME, name, number)
    with pytest.raises(core.TrainingError, match=reason):
        _resumed(load, run)


def test_what_is_not_a_file_is_not_read(load: Load, run: Path) -> None:
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        (run / NAME).unlink(missing_ok=True)
        later = run / "checkpoint-0000003.safetensors"
        make(later)
        with pytest.raises(core.TrainingError, match=r"0003.safetensors is not a checkpoint of a"):
            _resumed(load, run)
        later.rmdir() if later.is_dir() and not later.is_symlink() else later.unlink()


def test_one_that_is_larger_than_the_training_is_not_mapped(load: Load, run: Path) -> None:
    os.truncate(run / NAME, 2**40)  # sparse: it takes no space on disk
    with pytest.raises(core.TrainingError, match=r"it is larger than \d+ bytes. Remove it"):
        _resumed(load, run)


def test_one_that_was_not_changed_goes_on(load: Load, run: Path) -> None:
    _changed(run / NAME, lambda header: None)
    [step] = _resumed(load, run)
    assert step.step == 3
    assert np.isfinite(step.loss)
