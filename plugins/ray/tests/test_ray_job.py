"""What a job of ``classify --ray`` finds in OUT, without a cluster."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pyarrow.fs
import pytest

from core_ray.job import _finished, _note

FILES = pyarrow.fs.LocalFileSystem()
SAMPLE = Path(__file__).parent / "data" / "job_1.json"
RESUME = {"resume": True, "overwrite": False}


def finished(out: Path, job: str = "3f2a", **flags: Any) -> bool:
    return _finished(FILES, str(out), job, {**RESUME, **flags})


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output whose job was finished, its checkpoint still there."""
    folder = tmp_path / "out"
    folder.mkdir()
    shutil.copy(SAMPLE, folder / "_job.json")
    (tmp_path / "out.checkpoint").mkdir()
    return folder


def test_a_stored_note_is_read(out: Path) -> None:
    assert finished(out)
    assert not out.with_name("out.checkpoint").exists()  # the driver died before it went


def test_a_note_is_read_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for done in (False, True):
        _note(FILES, str(out), "job", finished=done)
        assert finished(out, "job") is done
    assert [file.name for file in out.iterdir()] == ["_job.json"]


def test_where_nothing_was_begun_a_job_begins(tmp_path: Path) -> None:
    assert not finished(tmp_path / "out")
    assert not finished(tmp_path / "out", resume=False)


def test_what_is_there_is_gone_with_overwrite_alone(out: Path) -> None:
    with pytest.raises(click.UsageError, match="--resume goes on with it"):
        finished(out, resume=False)
    assert not finished(out, resume=False, overwrite=True)
    assert not out.exists()


def test_another_job_and_a_later_version_are_refused(out: Path) -> None:
    with pytest.raises(click.UsageError, match="is of another input"):
        finished(out, "other")
    (out / "_job.json").write_text(json.dumps({"format": 2, "job": "3f2a", "finished": False}))
    with pytest.raises(click.UsageError, match="has format 2, and this version of core-ray reads"):
        finished(out)
    (out / "_job.json").unlink()
    (out / "mine.parquet").touch()
    with pytest.raises(click.UsageError, match="is the output of no job of this kind"):
        finished(out)
