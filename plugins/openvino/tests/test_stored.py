"""Converted matrices on disk: later loads map them, and whatever is wrong with them is repaired."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from safetensors.numpy import load_file, save_file

import core
from core.errors import InvalidModelError, InvalidOptionError
from core_openvino import stored
from core_openvino.checkpoint import read_checkpoint
from core_openvino.loaded import open_session
from core_openvino.settings import SessionSettings
from core_openvino.weights import converted
from plugins.openvino.tests.conftest import write_weights
from plugins.openvino.tests.passes import Logits, chunked_logits, skip_without_instructions
from runtime.tests.gguf.tiny_gguf import tiny_gguf
from runtime.tests.tiny import Checkpoint

if TYPE_CHECKING:
    from core_openvino.loaded import LoadedModel
    from core_openvino.model import OpenVinoModel

ROOM = 2**30
PROMPT = list(range(3, 45))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of converted matrices, of a cache that is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "core" / "openvino"


def logits_of(directory: Path, dtype: str = "float32", disk: int = ROOM) -> Logits:
    """Return logits of passes of many tokens and of one."""
    skip_without_instructions(dtype)
    settings = SessionSettings(cells=256, n_seq_max=2, n_batch=256, threads=1, dtype=dtype)
    session = open_session(read_checkpoint(directory, None), settings, disk)
    try:
        return np.concatenate([chunked_logits(session, PROMPT, size) for size in (32, 1)])
    finally:
        session.close()


def the_file(folder: Path) -> Path:
    (file,) = folder.iterdir()
    return file


def refuse_to_convert(*_: object) -> Any:
    raise AssertionError("a matrix was converted")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3"])
def test_later_loads_map_the_matrices(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch, family: str, dtype: str
) -> None:
    directory = checkpoint(family)
    expected = logits_of(directory, dtype, disk=0)
    assert not folder.exists()
    assert np.array_equal(logits_of(directory, dtype), expected)
    monkeypatch.setattr(stored, "converted", refuse_to_convert)
    monkeypatch.setattr("core_openvino.weights.converted", refuse_to_convert)
    assert np.array_equal(logits_of(directory, dtype), expected)
    assert the_file(folder).stat().st_mode & 0o777 == 0o600


def _cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _of_someone_else(file: Path) -> None:
    file.write_bytes(b"#" * file.stat().st_size)


def _of_another_form(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(stored._FIRST_LINE) - 2] += 1
    file.write_bytes(data)


def _zeros_in_the_middle(file: Path) -> None:
    with file.open("rb+") as stream:
        stream.seek(file.stat().st_size // 3)
        stream.write(bytes(2 * stored._SAMPLE))


@pytest.mark.parametrize(
    "harm", [_cut, _empty, _of_someone_else, _of_another_form, _zeros_in_the_middle]
)
def test_a_broken_file_is_written_again(
    checkpoint: Checkpoint, folder: Path, harm: Callable[[Path], None]
) -> None:
    directory = checkpoint()
    expected = logits_of(directory)
    whole = the_file(folder).read_bytes()
    harm(the_file(folder))
    assert np.array_equal(logits_of(directory), expected)
    assert the_file(folder).read_bytes() == whole


def test_a_folder_in_its_place_is_left_alone(checkpoint: Checkpoint, folder: Path) -> None:
    directory = checkpoint()
    expected = logits_of(directory)
    file = the_file(folder)
    file.unlink()
    file.mkdir()
    assert np.array_equal(logits_of(directory), expected)


def test_changed_weights_are_converted_again(checkpoint: Checkpoint, folder: Path) -> None:
    """Also if size and header are as before, and the samples of a fingerprint miss the change."""
    directory = checkpoint()
    before = logits_of(directory)
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"][3] += 1
    save_file(tensors, directory / "model.safetensors")
    assert np.array_equal(logits_of(directory), expected := logits_of(directory, disk=0))
    assert not np.array_equal(expected, before)


def test_a_time_that_was_set_back_hides_no_change(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "fingerprint", lambda path: "the same")
    directory = checkpoint()
    before = logits_of(directory)
    time = (directory / "model.safetensors").stat().st_mtime_ns
    write_weights(directory, json.loads((directory / "config.json").read_text()), seed=2)
    os.utime(directory / "model.safetensors", ns=(time, time))
    assert np.array_equal(logits_of(directory), expected := logits_of(directory, disk=0))
    assert not np.array_equal(expected, before)


def test_files_that_change_after_they_were_read_are_not_stored(
    checkpoint: Checkpoint, folder: Path
) -> None:
    """Their matrices would be read where the old header has them, and kept for the new files."""
    directory = checkpoint()
    expected = logits_of(directory, disk=0)
    old = read_checkpoint(directory, None)
    tensors = load_file(directory / "model.safetensors")
    save_file(tensors, directory / "model.safetensors", {"more": "of a header"})
    assert stored.stored_matrices(old, "float32", ROOM) is None
    assert not [*folder.iterdir()]
    assert np.array_equal(logits_of(directory), expected)


def test_files_that_change_while_they_are_converted_are_not_stored(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, others = checkpoint(name="first"), checkpoint(name="second")
    write_weights(others, json.loads((others / "config.json").read_text()), seed=2)

    def replaced(*args: Any) -> Any:
        shutil.copy(others / "model.safetensors", directory / "model.safetensors")
        return converted(*args)

    monkeypatch.setattr(stored, "converted", replaced)
    logits_of(directory)
    assert not [*folder.iterdir()]
    monkeypatch.setattr(stored, "converted", converted)
    assert np.array_equal(logits_of(directory), logits_of(others, disk=0))


def test_a_link_that_changes_while_matrices_are_converted(
    checkpoint: Checkpoint, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load reads one of the two models, and stores it as that."""
    first, second = (checkpoint(name=name) for name in ("first", "second"))
    write_weights(second, json.loads((second / "config.json").read_text()), seed=2)
    link, targets = tmp_path / "current", [first, second]
    link.symlink_to(first)

    def switched(*args: Any) -> Any:
        link.unlink()
        targets.reverse()
        link.symlink_to(targets[0])
        return converted(*args)

    monkeypatch.setattr(stored, "converted", switched)
    expected = logits_of(first, disk=0)
    assert np.array_equal(logits_of(link), expected)
    monkeypatch.setattr(stored, "converted", converted)
    assert np.array_equal(logits_of(first), expected)


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "BF16"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_the_matrices_of_a_gguf_file(
    tmp_path: Path, folder: Path, architecture: str, kind: str
) -> None:
    file, results = tiny_gguf(architecture), []
    matrices = [name for name, array in file.tensors.items() if array.ndim == 2]
    file.quantized.update(dict.fromkeys(matrices, GGMLQuantizationType[kind]))
    for _ in range(2):  # with other weights at the same place
        path = file.write(tmp_path / "m.gguf")
        expected = logits_of(path, disk=0)
        assert all(np.array_equal(logits_of(path), expected) for _ in range(2))
        results.append(expected)
        file.tensors[matrices[-1]] = -file.tensors[matrices[-1]]
    assert not np.array_equal(results[0], results[1])
    assert len([*folder.iterdir()]) == 2


def test_another_version_converts_again(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = checkpoint()
    for version in ("1.0", "1.1"):
        monkeypatch.setattr(stored, "__version__", version)
        logits_of(directory)
    assert len([*folder.iterdir()]) == 2


def test_files_that_vanish_while_they_are_listed(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another process that loads a model removes them, and renames its draft."""
    monkeypatch.setattr(stored, "_LEAST", 0)
    directory, glob = checkpoint(), Path.glob

    def listed(self: Path, pattern: str) -> list[Path]:
        return [*glob(self, pattern), *([self / "gone"] if self == folder else [])]

    monkeypatch.setattr(Path, "glob", listed)
    assert cache_of(directory)[0] > 0
    assert the_file(folder).stat().st_size > 2**16


def test_another_time_of_change_is_another_file(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "fingerprint", lambda path: "the same")
    directory = checkpoint()
    logits_of(directory)
    os.utime(directory / "model.safetensors", ns=(1, 1))
    logits_of(directory)
    logits_of(directory)
    assert len([*folder.iterdir()]) == 2


def test_the_files_used_last_are_kept(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directories = [checkpoint(name=name, vocab_size=300 + n) for n, name in enumerate("abc")]
    files = []
    for age, directory in enumerate(directories):
        known = {*folder.iterdir()} if folder.exists() else set()
        size = stored.layout(read_checkpoint(directory, None).tensors, "float32")[1]
        logits_of(directory, disk=int(2.5 * size))
        (new,) = {*folder.iterdir()} - known
        files.append(new)
        os.utime(new, (1000 + age, 1000 + age))
        if directory is directories[1]:
            logits_of(directories[0])  # used again: the second is the oldest
    assert {*folder.iterdir()} == {files[0], files[2]}


def test_a_file_beyond_the_limit_is_not_written(checkpoint: Checkpoint, folder: Path) -> None:
    directory = checkpoint()
    assert np.array_equal(logits_of(directory, disk=1000), logits_of(directory, disk=0))
    assert not folder.exists()


def test_a_cache_that_cannot_be_written_changes_nothing(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    directory = checkpoint()
    assert np.array_equal(logits_of(directory), logits_of(directory, disk=0))


def test_a_full_disk_changes_nothing(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    directory = checkpoint()
    expected = logits_of(directory, disk=0)
    monkeypatch.setattr(stored, "_digest", full)
    assert np.array_equal(logits_of(directory), expected)
    assert not [*folder.iterdir()]


def test_weights_that_int8_would_hide_are_refused(checkpoint: Checkpoint, folder: Path) -> None:
    directory = checkpoint()
    tensors = load_file(directory / "model.safetensors")
    tensors["model.layers.0.mlp.up_proj.weight"][2, 3] = np.nan
    save_file(tensors, directory / "model.safetensors")
    for _ in range(2):
        with pytest.raises(InvalidModelError, match=r"up_proj\.weight .* NaN or infinite"):
            logits_of(directory, "int8")
    assert not [*folder.iterdir()]


# ------------------------------------------------------------ the option


def cache_of(directory: Path, **options: Any) -> tuple[int, str]:
    """Return the size and the reason that a load shows."""
    options = {"n_threads": 1, "dtype": "float32", **options}
    with core.load_model(directory, backend="openvino", options=options) as model:
        choices = model.choices()  # type: ignore[attr-defined]
        (choice,) = (choice for choice in choices if choice.name == "weight_cache")
        assert model.classify(["ab"])[0].error is None
    return int(choice.value), choice.reason


def test_small_weights_are_not_stored(checkpoint: Checkpoint, folder: Path) -> None:
    assert cache_of(checkpoint()) == (0, "these weights are converted in a moment")
    assert not folder.exists()


def test_a_size_that_is_asked_for(checkpoint: Checkpoint, folder: Path) -> None:
    directory = checkpoint()
    assert cache_of(directory, weight_cache=0)[0] == 0
    assert not folder.exists()
    assert cache_of(directory, weight_cache=ROOM)[0] == ROOM
    assert the_file(folder).stat().st_size > 2**16
    with pytest.raises(InvalidOptionError, match="weight_cache"):
        cache_of(directory, weight_cache=-1)


def test_the_files_take_a_quarter_of_what_is_free(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_LEAST", 0)
    directory, usage = checkpoint(), shutil.disk_usage("/")

    def free(size: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=size))

    free(2**18)
    assert cache_of(directory)[0] == 0
    free(2**30)
    assert cache_of(directory)[0] == 2**28
    own = the_file(folder).stat().st_size
    free(2**30 - own)
    assert cache_of(directory)[0] == 2**28
    free(2**50)
    assert cache_of(directory)[0] == 2**34


@pytest.mark.parametrize("options", [{}, {"weight_cache": ROOM}])
def test_a_folder_that_cannot_be_used_is_a_reason(
    checkpoint: Checkpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, int],
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(stored, "_LEAST", 0)
    size, reason = cache_of(checkpoint(), **options)
    assert size == 0
    assert "cannot be used" in reason


def test_the_estimate_counts_weights_that_no_file_can_keep(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weights(size: int) -> int:
        options = {"n_threads": 1, "dtype": "float32", "weight_cache": size}
        with core.load_model(directory, backend="openvino", options=options) as model:
            return cast("LoadedModel", cast("OpenVinoModel", model)._loaded).weight_bytes

    directory = checkpoint()
    mapped, in_memory = weights(ROOM), weights(0)
    assert mapped < in_memory
    the_file(folder).unlink()
    usage = shutil.disk_usage("/")._replace(free=2**10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert weights(ROOM) == in_memory
    assert not [*folder.iterdir()]
    folder.rmdir()
    folder.write_bytes(b"")  # not a folder, so that nothing can be written there
    assert weights(ROOM) == in_memory
