"""What a job of ``classify --ray`` finds in OUT, without a cluster."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import click
import pyarrow.fs
import pytest
from click.testing import CliRunner

from core_cli.app import build
from core_ray import folders, job
from core_ray.job import _finished

FILES = pyarrow.fs.LocalFileSystem()
SAMPLE = Path(__file__).parent / "data" / "job_1.json"
RESUME = {"resume": True, "overwrite": False}


TASK = f"{'0a' * 16}_000003"  # a write and a task of it, as Ray names files by them
ANSWERS = ("_job.json.new", f"{TASK}.parquet", f"7_{TASK}-12.parquet")
IDS = (f"{TASK}.parquet", f"7_{TASK}.pending.parquet")


def finished(out: Path, name: str = "3f2a", **flags: Any) -> bool:
    return _finished(FILES, str(out), name, {**RESUME, **flags})


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
        folders.note(FILES, str(out), "job", finished=done)
        assert finished(out, "job") is done
    assert [file.name for file in out.iterdir()] == ["_job.json"]
    assert out.stat().st_mode & 0o777 == 0o700  # what was asked, and the answers


def test_where_nothing_was_begun_a_job_begins(tmp_path: Path) -> None:
    assert not finished(tmp_path / "out")
    assert not finished(tmp_path / "out", resume=False)


def test_what_a_job_wrote_is_removed_and_nothing_else(out: Path) -> None:
    checkpoint = out.with_name("out.checkpoint")
    for folder, names in ((out, ANSWERS), (checkpoint, IDS)):
        for name in names:
            (folder / name).touch()
    with pytest.raises(click.UsageError, match=r"already exists\. Use --resume"):
        finished(out, resume=False)
    assert not finished(out, resume=False, overwrite=True)
    assert len(os.listdir(out)) == 1 + len(ANSWERS)  # until the work begins

    (out / "mine.parquet").touch()  # it came after the job was checked
    (checkpoint / "mine.parquet").touch()
    folders.clear(FILES, str(out))
    assert os.listdir(out) == os.listdir(checkpoint) == ["mine.parquet"]
    (checkpoint / "mine.parquet").unlink()
    folders.clear(FILES, str(out))
    assert not checkpoint.exists()


@pytest.mark.parametrize(
    "name", ["out/notes.txt", "out/thesis/1.tex", "out.checkpoint/mine.parquet"]
)
def test_a_folder_with_anything_else_is_not_replaced(out: Path, name: str) -> None:
    mine = out.parent / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(click.UsageError, match="which was not written by a job"):
        finished(out, resume=False, overwrite=True)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("given", "source"),
    [("out", "out"), ("out", "out/rows.parquet"), ("rows", "rows.checkpoint/a"), ("link", "out")],
)
def test_an_output_that_holds_the_input_is_refused(
    out: Path, monkeypatch: pytest.MonkeyPatch, given: str, source: str
) -> None:
    (out.parent / "link").symlink_to(out)
    monkeypatch.chdir(out.parent)
    monkeypatch.setattr(job, "_connect", lambda flags: pytest.fail("it goes to the cluster"))
    arguments = f"classify --ray -m m -i {source} -o {given} --labels a,b --overwrite"
    refused = CliRunner().invoke(build(), arguments.split())
    assert refused.exit_code == 2
    assert "contains the input" in refused.output
    assert (out / "_job.json").exists()


def test_an_input_is_known_by_its_files(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "month").mkdir(parents=True)
    for name in ("a.parquet", "month/b.parquet"):
        (folder / name).write_bytes(b"1234")
        os.utime(folder / name, ns=(5, 5))
    first = folders.listing(str(folder))
    assert first == [("/a.parquet", 4, 5), ("/month/b.parquet", 4, 5)]
    assert folders.listing(str(folder / "a.parquet")) == [("", 4, 5)]
    os.utime(folder / "a.parquet", ns=(6, 6))  # written again
    assert folders.listing(str(folder)) != first
    os.utime(folder / "a.parquet", ns=(5, 5))
    (folder / "c.parquet").touch()
    assert len(folders.listing(str(folder))) == 3
    assert folders.listing("https://host/rows.parquet") == []  # read by fsspec, if at all
    with pytest.raises(click.UsageError, match="missing does not exist"):
        folders.listing(str(tmp_path / "missing"))


@pytest.mark.parametrize("change", ["input grows", "model changes", "nothing"])
def test_a_finished_job_is_another_once_its_input_or_model_changed(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    own = shutil.copytree(model, tmp_path / "model")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.parquet").write_bytes(b"rows")
    monkeypatch.chdir(tmp_path)
    jobs: list[str] = []

    def finished(files: Any, folder: str, name: str, flags: Any) -> bool:
        jobs.append(name)
        return True

    monkeypatch.setattr(job, "_finished", finished)
    arguments = "classify --ray -m model -i in -o out --labels a,b --resume"
    for _ in range(2):
        assert CliRunner().invoke(build(), arguments.split()).exit_code == 0
        if change == "input grows":
            (tmp_path / "in" / "b.parquet").write_bytes(b"more")
        elif change == "model changes":
            (own / "config.json").write_text("{}")
    assert (jobs[0] == jobs[1]) == (change == "nothing")


def test_an_output_inside_the_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    arguments = "classify --ray -m m -i in -o in/answers --labels a,b"
    refused = CliRunner().invoke(build(), arguments.split())
    assert (refused.exit_code, "is inside the input" in refused.output) == (2, True)
    assert not (tmp_path / "in" / "answers").exists()


@pytest.mark.parametrize(
    "note",
    [
        b"[" * 60_000,
        b'{"format": Infinity, "job": "a", "finished": false}',
        b'{"format": 1, "job": 5, "finished": false}',
        b'{"format": 1, "job": "a", "finished": "no"}',
        b'{"format": true, "job": "a", "finished": false}',
        b"\xff",
        None,  # a pipe
    ],
)
def test_a_note_that_is_none_is_refused(out: Path, note: bytes | None) -> None:
    (out / "_job.json").unlink()
    if note is None:
        os.mkfifo(out / "_job.json")
    else:
        (out / "_job.json").write_bytes(note)
    with pytest.raises(click.UsageError, match="is not the note of a job: "):
        finished(out)


def test_another_job_and_a_later_version_are_refused(out: Path) -> None:
    with pytest.raises(click.UsageError, match="has changed"):
        finished(out, "other")
    (out / "_job.json").write_text(json.dumps({"format": 2, "job": "3f2a", "finished": False}))
    with pytest.raises(click.UsageError, match="has format 2, but this version reads"):
        finished(out)
    (out / "_job.json").unlink()
    (out / "mine.parquet").touch()
    with pytest.raises(click.UsageError, match="is not the output of a job"):
        finished(out)
