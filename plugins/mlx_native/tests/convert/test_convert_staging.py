"""OUT_DIR appears complete or not at all, and nothing of the user's is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConversionError
from core_mlx_native.convert import convert
from core_mlx_native.convert.staging import staged

MakeGguf = Callable[..., Any]
LEFT_OVER = ".out.partial-1-89abcdef"

_HANG_IN_THE_MIDDLE = """
import sys, time
from core_mlx_native.convert import convert

def progress(done, total):
    if done == total:
        print("halfway", flush=True)
        time.sleep(600)

convert(sys.argv[1], sys.argv[2], shard_bytes=1, progress=progress)
"""

_AS_NOBODY = """
import os, sys
from pathlib import Path
from core.errors import ConversionError
from core_mlx_native.convert import convert
convert(sys.argv[1], Path(sys.argv[2]) / "allowed")
os.chmod(sys.argv[2], 0o555)
if os.getuid() == 0:
    os.setuid(65534)
try:
    convert(sys.argv[1], Path(sys.argv[2]) / "refused")
except ConversionError as error:
    print(error)
"""


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_killed_conversion_leaves_no_model(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    import core

    models = tmp_path / "models"
    models.mkdir()
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), models / "out"
    command = [sys.executable, "-c", _HANG_IN_THE_MIDDLE, str(source), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "halfway\n"
        child.send_signal(signal.SIGKILL)
    (left_over,) = names(models)
    assert left_over.startswith(f".out.partial-{child.pid}-")
    assert list((models / left_over).glob("*.safetensors"))
    assert not (models / left_over / "config.json").exists()
    assert core.discover(models, depth=2) == []
    convert(source, target)
    assert names(models) == {"out"}
    assert [model.path for model in core.discover(models)] == [str(target)]


def test_what_only_has_the_name_of_a_leftover_is_left_alone(
    tmp_path: Path, tiny_gguf: MakeGguf
) -> None:
    source = tiny_gguf().write(tmp_path / "m.gguf")
    other = tmp_path / "other"
    (other / "replaced").mkdir(parents=True)
    (tmp_path / LEFT_OVER).symlink_to(other)
    os.mkfifo(tmp_path / ".out.partial-1-0123abcd")  # opening it would wait for a writer
    convert(source, tmp_path / "out")
    (tmp_path / ".out.partial-notes").mkdir()  # the name of no process
    convert(source, tmp_path / "out", overwrite=True)
    kept = {LEFT_OVER, ".out.partial-1-0123abcd", ".out.partial-notes"}
    assert names(tmp_path) == {"m.gguf", "out", "other", *kept}
    assert names(other) == {"replaced"}


def test_a_conversion_that_runs_is_left_alone(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    slower = staged(target, overwrite=False)
    partial = slower.__enter__()
    (partial / "mine").touch()
    convert(source, target)  # finishes first
    assert (partial / "mine").exists()
    with pytest.raises(ConversionError, match=r"Cannot write .*: Directory not empty"):
        slower.__exit__(None, None, None)
    assert names(tmp_path) == {"m.gguf", "out"}
    assert (target / "config.json").exists()


def test_what_a_dead_process_left_goes_whatever_the_name(
    tmp_path: Path, tiny_gguf: MakeGguf
) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out[1]"
    (tmp_path / ".out[1].partial-1-ffffffff" / "part").mkdir(parents=True)
    convert(source, target)
    assert names(tmp_path) == {"m.gguf", "out[1]"}


def test_a_model_comes_back_whose_replacement_died_halfway(
    tmp_path: Path, tiny_gguf: MakeGguf
) -> None:
    tiny, target = tiny_gguf(), tmp_path / "out"
    convert(tiny.write(tmp_path / "m.gguf"), target)
    partial = tmp_path / LEFT_OVER
    partial.mkdir()
    target.rename(partial / "replaced")
    tiny.tensors["blk.1.ffn_down.weight"][0, 0] = float("inf")
    with pytest.raises(ConversionError, match="does not fit"):
        convert(tiny.write(tmp_path / "bad.gguf"), target, overwrite=True)
    assert (target / "config.json").exists()
    assert names(tmp_path) == {"m.gguf", "bad.gguf", "out"}


def test_a_target_with_files_is_refused(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    target.mkdir()
    convert(source, target)  # empty: fine
    with pytest.raises(ConversionError, match="is not empty"):
        convert(source, target)


def test_overwrite_replaces_a_model(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    convert(source, target)
    convert(source, target, dtype="float16", overwrite=True)
    assert json.loads((target / "config.json").read_bytes())["torch_dtype"] == "float16"
    assert "replaced" not in names(target)
    assert names(tmp_path) == {"m.gguf", "out"}


def test_overwrite_spares_what_is_no_model(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source = tiny_gguf().write(tmp_path / "m.gguf")
    with pytest.raises(ConversionError, match=r"no conversion has written m\.gguf in it"):
        convert(source, tmp_path, overwrite=True)
    with pytest.raises(ConversionError, match="is a file"):
        convert(source, source, overwrite=True)
    assert source.stat().st_size > 0


@pytest.mark.parametrize("name", ["notes.txt", "notes/of/mine.txt", "conversion.json"])
def test_overwrite_spares_what_others_put_into_a_model(
    tmp_path: Path, tiny_gguf: MakeGguf, name: str
) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    convert(source, target)
    mine = target / name
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(ConversionError, match=r"is not overwritten: no conversion has written \S"):
        convert(source, target, overwrite=True)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    "record", [b"[" * 100_000, b'{"files": {}}', b'{"files": [1, null]}', b"", None]
)
def test_a_record_that_is_none_replaces_nothing(
    tmp_path: Path, tiny_gguf: MakeGguf, record: bytes | None
) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    target.mkdir()
    if record is None:
        os.mkfifo(target / "conversion.json")  # which nobody writes
    else:
        (target / "conversion.json").write_bytes(record)
    with pytest.raises(ConversionError, match="is not overwritten"):
        convert(source, target, overwrite=True)
    assert names(target) == {"conversion.json"}


def test_overwrite_spares_what_came_meanwhile(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    convert(source, target)

    def progress(done: int, total: int) -> None:
        (target / "notes.txt").write_text("mine")

    with pytest.raises(ConversionError, match=r"no conversion has written notes\.txt"):
        convert(source, target, overwrite=True, progress=progress)
    assert (target / "notes.txt").read_text() == "mine"
    assert names(tmp_path) == {"m.gguf", "out"}


def test_a_failed_overwrite_keeps_the_old_model(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    tiny, target = tiny_gguf(), tmp_path / "out"
    convert(tiny.write(tmp_path / "m.gguf"), target)
    tiny.tensors["blk.1.ffn_down.weight"][0, 0] = float("inf")
    bad = tiny.write(tmp_path / "bad.gguf")
    with pytest.raises(ConversionError, match="does not fit"):
        convert(bad, target, overwrite=True)
    record = json.loads((target / "conversion.json").read_bytes())
    assert record["source"]["file_name"] == "m.gguf"
    assert names(tmp_path) == {"m.gguf", "bad.gguf", "out"}


def test_a_target_without_permission(tiny_gguf: MakeGguf) -> None:
    with tempfile.TemporaryDirectory() as place:  # pytest's own is closed to other users
        directory = Path(place)
        directory.chmod(0o755)
        source = tiny_gguf().write(directory / "m.gguf")
        command = [sys.executable, "-c", _AS_NOBODY, str(source), place]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        directory.chmod(0o755)
        assert names(directory) == {"m.gguf", "allowed"}
    assert "Cannot write the converted model to" in done.stdout
    assert "Permission denied" in done.stdout


def test_the_record_names_source_and_options(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    source = tiny_gguf().write(tmp_path / "m.gguf")
    out = convert(source, tmp_path / "out", dtype="bfloat16", bits=8, group_size=32)
    record = json.loads((out / "conversion.json").read_bytes())
    assert record.pop("converter_version") >= 1
    assert len(record["source"].pop("sha256")) == 64
    assert set(record.pop("files")) == names(out)
    assert record == {
        "source": {"file_name": "m.gguf", "size": source.stat().st_size},
        "dtype": "bfloat16",
        "bits": 8,
        "group_size": 32,
    }


def test_overwrite_never_takes_its_own_source(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    out = tmp_path / "model"
    convert(tiny_gguf().write(tmp_path / "m.gguf"), out)
    source = tiny_gguf().write(out / "m.gguf")
    with pytest.raises(ConversionError, match=r"no conversion has written m\.gguf in it"):
        convert(source, out, overwrite=True)
    assert source.exists()
