"""Paths, formats and JSON files: a typed error for each way they fail."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InvalidModelError, ModelNotFoundError
from core.models.files import (
    MAX_JSON_BYTES,
    model_formats,
    read_config_json,
    read_json_object,
    read_model_file,
    resolve_path,
)
from core.models.gguf import read_gguf

Interrupts = Callable[[int], AbstractContextManager[None]]
AsNobody = Callable[[Callable[[], object]], str]


def make(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"GGUF" if name.endswith("gguf") else b"{}")
    return directory


def test_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert resolve_path("model") == str(tmp_path / "model")
    assert resolve_path(Path("~/model")) == "/home/someone/model"
    with pytest.raises(ModelNotFoundError, match="is empty"):
        resolve_path("")


def test_a_relative_path_where_the_working_directory_was_deleted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ModelNotFoundError, match=r"'model' is relative.*was deleted"):
        model_formats("model")
    assert model_formats(make(tmp_path / "model", "model.gguf")) == ("gguf",)


def linked_pipe(path: Path) -> None:
    os.mkfifo(f"{path}-pipe")
    path.symlink_to(f"{path}-pipe")


NO_FILES: dict[str, Callable[[Path], None]] = {
    "pipe": os.mkfifo,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "link to a pipe": linked_pipe,
}
READERS: dict[str, Callable[[Path], object]] = {
    "json": read_json_object,
    "gguf": read_gguf,
    "bytes": lambda path: read_model_file(path, 99),
}


@pytest.mark.parametrize("what", NO_FILES)
@pytest.mark.parametrize("reader", READERS)
def test_pipes_and_devices_are_refused_at_once(tmp_path: Path, what: str, reader: str) -> None:
    path = tmp_path / "config.json"
    NO_FILES[what](path)
    with pytest.raises(InvalidModelError, match="a pipe or a device"):
        READERS[reader](path)


def test_a_directory_for_a_file(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="Is a directory"):
        read_json_object(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # it closes what is dropped
@pytest.mark.parametrize("reader", READERS)
def test_an_interrupt_leaves_no_descriptor(
    tmp_path: Path, reader: str, interrupted_behind: Interrupts
) -> None:
    """A signal's handler may raise behind each call; a raw descriptor would stay open for good."""
    path = tmp_path / "config.json"
    path.write_bytes(b"{}" if reader == "json" else b"GGUF\3" + bytes(19))
    READERS[reader](path)  # imports what it needs: an interrupted import keeps its lock
    before = os.listdir("/proc/self/fd")
    for calls in itertools.count():
        with suppress(KeyboardInterrupt), interrupted_behind(calls):
            READERS[reader](path)
            break
        assert os.listdir("/proc/self/fd") == before, f"behind call {calls}"
    assert calls > 10


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    assert read_model_file(path, 3) == b"abc"
    os.truncate(path, 2**40)  # sparse: it has no data
    with pytest.raises(InvalidModelError, match="larger than 3 bytes"):
        read_model_file(path, 3)


@pytest.mark.parametrize(
    ("names", "formats"),
    [
        (("config.json", "model.safetensors"), ("safetensors",)),
        (("config.json", "model.safetensors", "model.gguf"), ("safetensors", "gguf")),
        (("config.json", "model.gguf"), ("gguf",)),
        (("model.GGUF",), ("gguf",)),
        (("config.json",), ("safetensors",)),
        (("model.gguf", "model.safetensors"), ("gguf",)),
    ],
)
def test_formats_of_a_directory(
    tmp_path: Path, names: tuple[str, ...], formats: tuple[str, ...]
) -> None:
    make(tmp_path, *names)
    assert model_formats(tmp_path) == formats


def test_formats_of_a_file(tmp_path: Path) -> None:
    make(tmp_path, "model.gguf")
    (tmp_path / "sha256-abc").write_bytes(b"GGUF...")
    assert model_formats(tmp_path / "model.gguf") == ("gguf",)
    assert model_formats(tmp_path / "sha256-abc") == ("gguf",)


@pytest.mark.parametrize("names", [(), ("model.safetensors",), ("mmproj-f16.gguf",), ("x.bin",)])
def test_a_directory_that_is_no_model(tmp_path: Path, names: tuple[str, ...]) -> None:
    make(tmp_path, *names)
    with pytest.raises(ModelNotFoundError, match=r"not a model directory: expected config\.json"):
        model_formats(tmp_path)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("params.json", "consolidated.safetensors", "tekken.json"), "publisher's own format"),
        (("params.json", "consolidated.00.pth", "tokenizer.model"), "transformers' layout"),
        (("adapter_config.json", "adapter_model.safetensors"), "Load its base model"),
    ],
)
def test_a_directory_of_another_kind_is_called_what_it_is(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(InvalidModelError, match=message):
        model_formats(tmp_path)


@pytest.mark.parametrize("name", ["nowhere", "file/below", "x" * 300, "null\0character"])
def test_no_such_path(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelNotFoundError):
        model_formats(tmp_path / name)


def test_no_such_path_says_what_to_do() -> None:
    with pytest.raises(ModelNotFoundError, match="on this machine with `infer-cli discover`"):
        model_formats("mlx-community/some-model")


def test_files_that_are_no_models(tmp_path: Path) -> None:
    make(tmp_path, "model.safetensors", "config.json")
    with pytest.raises(ModelNotFoundError, match="pass the directory"):
        model_formats(tmp_path / "model.safetensors")
    (tmp_path / "model.gguf").write_bytes(b"version https://git-lfs")
    with pytest.raises(InvalidModelError, match="does not start with 'GGUF'"):
        model_formats(tmp_path / "model.gguf")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelNotFoundError, match="is not a model"):
        model_formats(tmp_path / "pipe")


@pytest.mark.parametrize("locked", ["model", "model/config.json", "above", "model/model.gguf"])
def test_no_permission(public_dir: Path, as_nobody: AsNobody, locked: str) -> None:
    above = public_dir / "above"
    above.mkdir()
    model = make(above / "model", "config.json", "model.safetensors", "model.gguf")
    asked = {
        "model": lambda: model_formats(model),
        "above": lambda: model_formats(model),
        "model/config.json": lambda: read_config_json(model),
        "model/model.gguf": lambda: model_formats(model / "model.gguf"),
    }[locked]
    assert not as_nobody(asked).startswith("ModelAccessError")
    (above if locked == "above" else above / locked).chmod(0)
    answer = as_nobody(asked)
    assert answer.startswith("ModelAccessError: No permission to read"), answer
    (above if locked == "above" else above / locked).chmod(0o755)


def test_config_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('\ufeff{"model_type": "gemma3", "eps": Infinity}')
    assert read_config_json(tmp_path) == {"model_type": "gemma3", "eps": float("inf")}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting"),
        (b"[1]", "holds a list, not an object"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "digits"),
    ],
)
def test_a_broken_config(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "config.json").write_bytes(data)
    with pytest.raises(InvalidModelError, match=reason) as caught:
        read_config_json(tmp_path)
    assert str(tmp_path / "config.json") in str(caught.value)


def test_a_config_that_would_fill_the_memory(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(MAX_JSON_BYTES + 1)  # sparse: it takes no space on disk
    with pytest.raises(InvalidModelError, match="larger than"):
        read_config_json(tmp_path)


def test_a_config_that_is_a_directory_or_missing(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="does not exist"):
        read_config_json(tmp_path)
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ModelNotFoundError):
        read_config_json(tmp_path)


@given(data=st.one_of(st.binary(max_size=40), st.text('{}[]",:0123eE-.naN \\u', max_size=40)))
def test_any_bytes_are_an_object_or_a_typed_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes | str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    try:
        value = read_json_object(path)
    except InvalidModelError:
        return
    assert isinstance(value, dict)
