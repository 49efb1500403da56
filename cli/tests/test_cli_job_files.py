"""The files around a job, as others left them: what is spoilt is written anew, or refused."""

from __future__ import annotations

import ctypes
import json
import math
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import Finished, InferCli

ROWS, BROKEN = 300, 96  # rows in all, and those of the two blocks behind which it is broken off


class Job:
    """A job of some rows."""

    def __init__(self, infer_cli: InferCli, model: Path, folder: Path) -> None:
        self.model, self.rows, self.out = model, folder / "rows.txt", folder / "out.jsonl"
        self._infer_cli = infer_cli
        self.rows.write_text("".join(f"a b {n % 70}\n" for n in range(ROWS)))

    @property
    def journal(self) -> Path:
        return self.out.with_name(f"{self.out.name}.journal")

    def __call__(self, *flags: str | Path, out: Path | None = None) -> Result:
        asked = ("--labels", "a,b", "-i", self.rows, "-o", out or self.out)
        done = self._infer_cli("classify", "-m", self.model, "--backend", "fake", *asked, *flags)
        assert "Traceback" not in done.output
        return done

    def broken(self) -> bytes:
        """Break it off behind its second block; gives what an undisturbed run writes."""
        assert self("--overwrite").exit_code == 0
        whole = self.out.read_bytes()
        first, *blocks = self.journal.read_bytes().splitlines(keepends=True)
        self.journal.write_bytes(first + b"".join(blocks[:2]))
        os.truncate(self.out, json.loads(blocks[1])["end"])
        return whole


@pytest.fixture
def job(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> Job:
    return Job(infer_cli, fake_model, tmp_path)


def torn_output(job: Job) -> None:
    os.truncate(job.out, job.out.stat().st_size - 10)


def longer_output(job: Job) -> None:
    with open(job.out, "ab") as stream:
        stream.write(b'{"line": 97, "te')


def torn_journal(job: Job) -> None:
    os.truncate(job.journal, job.journal.stat().st_size - 10)


def torn_at_once(job: Job) -> None:
    os.truncate(job.journal, 20)
    job.out.unlink()


def behind(data: bytes) -> Callable[[Job], None]:
    def spoil(job: Job) -> None:
        with open(job.journal, "ab") as stream:
            stream.write(data)

    return spoil


def other_block(**change: object) -> Callable[[Job], None]:
    """Change what the journal says of the second block."""

    def spoil(job: Job) -> None:
        *lines, last = job.journal.read_bytes().splitlines(keepends=True)
        line = json.dumps({**json.loads(last), **change}).encode()
        job.journal.write_bytes(b"".join(lines) + line + b"\n")

    return spoil


MENDED: dict[str, Callable[[Job], object]] = {
    "torn output": torn_output,
    "longer output": longer_output,
    "no output": lambda job: job.out.unlink(),
    "torn journal": torn_journal,
    "torn first line": torn_at_once,
    "zeros": behind(b"\0" * 4096 + b"\n"),
    "no object": behind(b"[1]\n"),
    "other types": behind(b'{"rows": "x", "end": null, "crc": 1, "cost": 5, "seconds": 0}\n'),
    "nested": behind(b"[" * 200_000 + b"\n"),
    "a block that is not there": behind(
        b'{"rows": 128, "end": 99999999, "crc": 1, "cost": [], "seconds": 0}\n'
    ),
    "a block beyond any memory": behind(
        b'{"rows": 128, "end": 99999999999999, "crc": 1, "cost": [], "seconds": 0}\n'
    ),
    "a block that ends before it begins": behind(
        b'{"rows": 128, "end": 5, "crc": 1, "cost": [], "seconds": 0}\n'
    ),
    "a cost of seven numbers": other_block(cost=[1] * 7),
    "a cost that is none": other_block(cost=[math.nan]),
    "no rows": behind(b'{"rows": 0, "end": 99999, "crc": 0, "cost": [], "seconds": 0}\n'),
    "seconds that are none": other_block(seconds=math.nan),
}


@pytest.mark.parametrize("how", MENDED)
def test_what_was_spoilt_is_written_anew(job: Job, how: str) -> None:
    whole = job.broken()
    MENDED[how](job)
    done = job("--resume")
    assert done.exit_code == 0, done.stderr
    assert "nan" not in done.stderr
    assert job.out.read_bytes() == whole


def sparse(job: Job) -> None:
    os.truncate(job.journal, 0)
    os.truncate(job.journal, 2**35)


def of_another_version(job: Job) -> None:
    first, rest = job.journal.read_bytes().split(b"\n", 1)
    entry = json.loads(first)
    entry["job"]["core"] = "0.0.1"
    job.journal.write_bytes(json.dumps(entry).encode() + b"\n" + rest)


def folder(job: Job) -> None:
    job.journal.unlink()
    job.journal.mkdir()


def linked(job: Job) -> None:
    """As others would put it into a folder that they may write to."""
    job.journal.rename(job.journal.with_name("elsewhere"))
    job.journal.symlink_to("elsewhere")


EVER: tuple[tuple[str, ...], ...] = ((), ("--resume",), ("--overwrite",))
REFUSED: dict[str, tuple[Callable[[Job], object], str]] = {
    "none": (lambda job: job.journal.unlink(), "but no journal"),
    "binary": (lambda job: job.journal.write_bytes(b"\x7fELF\0\xff" * 99), "is not a job journal"),
    "text": (lambda job: job.journal.write_text("my diary\n"), "is not a job journal"),
    "JSON": (
        lambda job: job.journal.write_text('{"job": {"my": 1}}\n'),
        "is not a job journal",
    ),
    "huge": (sparse, "is not a job journal"),
    "folder": (folder, "is a link or not a regular file"),
    "link": (linked, "is a link or not a regular file"),
    "another version": (of_another_version, "core changed from '0.0.1'"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_journal_that_tells_nothing_is_refused(job: Job, how: str) -> None:
    job.broken()
    spoil, told = REFUSED[how]
    spoil(job)
    before = job.out.read_bytes()
    kept = job.journal.read_bytes() if job.journal.is_file() and how != "huge" else None
    for flags in ((), ("--resume",)) if how == "another version" else EVER:
        refused = job(*flags)
        assert refused.exit_code == 2, refused.stderr
    assert told in refused.stderr
    assert job.out.read_bytes() == before
    if kept is not None:
        assert job.journal.read_bytes() == kept  # it may be dear to somebody


@pytest.mark.parametrize("name", ["out.jsonl", "out.json", "out.csv", "out.tsv"])
def test_a_block_that_ends_within_a_row_is_refused(job: Job, name: str) -> None:
    """No job writes such a journal, although the bytes have the CRC-32 that it says."""
    job.out = job.out.with_name(name)
    job.broken()
    first, _, *_ = job.journal.read_bytes().splitlines(keepends=True)
    data = job.out.read_bytes()
    end = data.index(b"0") + 1
    block = {"rows": 32, "end": end, "crc": zlib.crc32(data[:end]), "cost": [], "seconds": 0}
    job.journal.write_bytes(first + json.dumps(block).encode() + b"\n")
    refused = job("--resume")
    assert refused.exit_code == 2
    assert f"{job.out} is not the output of a job (" in refused.stderr
    assert "Start over with --overwrite" in refused.stderr
    assert job.out.read_bytes() == data
    assert job("--overwrite").exit_code == 0


def a_tebibyte(path: Path) -> None:
    """Make a large file that takes no space on disk."""
    path.touch()
    os.truncate(path, 2**40)


def test_a_journal_that_no_job_writes_is_not_read(job: Job) -> None:
    os.mkfifo(job.journal)
    refused = job("--overwrite")
    assert refused.exit_code == 2
    assert f"{job.journal} is a link or not a regular file" in refused.stderr
    for make, reason in (
        (lambda path: path.symlink_to("/dev/zero"), "is a link or not a regular file"),
        (a_tebibyte, "is not a job journal: it is larger than 134217728 bytes"),
    ):
        job.journal.unlink()
        make(job.journal)
        for flag in ("--overwrite", "--resume"):
            refused = job(flag)
            assert refused.exit_code == 2
            assert f"{job.journal} {reason}" in refused.stderr
    assert not job.out.exists()


def test_a_file_of_the_journals_name_is_not_written_over(job: Job) -> None:
    job.journal.write_text("my diary\n")
    for flags in EVER:
        refused = job(*flags)
        assert refused.exit_code == 2
        assert "is not a job journal. Choose another -o" in refused.stderr
    assert job.journal.read_text() == "my diary\n"
    assert not job.out.exists()


def test_a_finished_output_that_is_gone_is_written_again(job: Job) -> None:
    job()
    whole = job.out.read_bytes()
    job.out.unlink()
    assert job("--resume").exit_code == 0
    assert job.out.read_bytes() == whole


def test_a_finished_output_that_was_changed_is_not_finished(job: Job) -> None:
    job()
    mine = job.out.read_bytes() + b'{"line": 301}\n'
    job.out.write_bytes(mine)
    refused = job("--resume")
    assert refused.exit_code == 2
    assert f"was finished with {len(mine) - 14} bytes, and has {len(mine)} now" in refused.stderr
    assert job.out.read_bytes() == mine


def test_a_finished_output_with_one_byte_changed_is_not_finished(job: Job) -> None:
    job()
    whole = job.out.read_bytes()
    at = whole.index(b'"a b 7"') + 5
    mine = whole[:at] + b"8" + whole[at + 1 :]
    job.out.write_bytes(mine)
    refused = job("--resume")
    assert refused.exit_code == 2
    assert f"{job.out} was finished with other bytes than it has now" in refused.stderr
    assert job("--overwrite").exit_code == 2
    assert job.out.read_bytes() == mine
    job.out.write_bytes(whole)
    assert "is already complete" in job("--resume").stderr


def test_an_output_that_an_older_version_finished_is_known_by_its_size(job: Job) -> None:
    job()
    *lines, last = job.journal.read_bytes().splitlines(keepends=True)
    done = json.loads(last)["done"]
    job.journal.write_bytes(b"".join(lines) + json.dumps({"done": done}).encode() + b"\n")
    assert "is already complete" in job("--resume").stderr


def test_where_the_output_is_gone_another_job_may_begin(job: Job) -> None:
    job.broken()
    job.out.unlink()
    done = job("--limit", "3")
    assert done.exit_code == 0, done.stderr
    assert len(job.out.read_bytes().splitlines()) == 3


def test_an_output_in_a_folder_of_no_locks(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems that a network shares have none."""

    def refused(*_: Any) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("core_cli.jobs.journal.fcntl.flock", refused)
    assert job().exit_code == 0


def test_a_link_is_followed_to_the_one_output(job: Job, tmp_path: Path) -> None:
    whole = job.broken()
    link = tmp_path / "link.jsonl"
    link.symlink_to(job.out)
    done = job("--resume", out=link)
    assert done.exit_code == 0, done.stderr
    assert link.is_symlink()
    assert job.out.read_bytes() == whole
    assert not (tmp_path / "link.jsonl.journal").exists()


def test_lines_that_a_finished_table_was_made_of_go(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert job(out=out).exit_code == 0
    left, whole = tmp_path / "out.parquet.rows", tmp_path / "whole"
    journal = tmp_path / "out.parquet.journal"

    # As a kill right after the journal's last line leaves them.
    out.rename(whole)
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core_cli.jobs.job.Job.tidy", lambda self: None)
        assert job("--resume", out=out).exit_code == 0
    assert left.exists()
    done = job("--resume", out=out)
    assert "is already complete" in done.stderr
    assert not left.exists()

    left.write_text("my own rows\n")
    assert job("--resume", out=out).exit_code == 0
    assert job("--overwrite", out=out).exit_code == 2
    assert left.read_text() == "my own rows\n"


def test_a_job_does_not_read_a_pipe(infer_cli: InferCli, job: Job, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    arguments = ("classify", "-m", job.model, "--labels", "a,b", "-i", pipe, "-o", job.out)
    refused = infer_cli.finish(*arguments)  # and does not wait for who writes into it
    assert refused.exit_code == 2
    assert "-o requires a regular input file, because resuming re-reads it" in refused.stderr
    assert not job.out.exists()


def as_who_may_not_everything() -> None:
    """Become what an ordinary user is: root, as which tests may run, is never refused a file."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        if os.geteuid() == 0 and prctl(24, capability, 0, 0, 0):  # PR_CAPBSET_DROP
            raise OSError(ctypes.get_errno(), "prctl")


@pytest.mark.skipif(sys.platform != "linux", reason="by a system call of Linux")
def test_what_may_not_be_written_is_refused_before_the_work(
    infer_cli: InferCli, job: Job, tmp_path: Path
) -> None:
    try:
        subprocess.run(["true"], preexec_fn=as_who_may_not_everything, check=True)
    except subprocess.SubprocessError:
        pytest.skip("this system lets nobody give up what root may")

    def finish(*flags: str | Path) -> Finished:
        asked = ("classify", "-m", job.model, "--labels", "a,b", "-i", job.rows)
        return infer_cli.finish(*asked, *flags, preexec_fn=as_who_may_not_everything)

    job.broken()
    before, kept = job.out.read_bytes(), job.journal.read_bytes()
    job.out.chmod(0o444)
    for flag in ("--resume", "--overwrite"):
        refused = finish("-o", job.out, flag)
        assert refused.exit_code == 2, refused
        assert f"Permission denied: {job.out}. Choose another name for -o." in refused.stderr
    assert (job.out.read_bytes(), job.journal.read_bytes()) == (before, kept)

    folder = tmp_path / "folder"
    folder.mkdir(mode=0o555)
    nowhere = finish("-o", folder / "out.csv")
    assert nowhere.exit_code == 2
    assert "out.csv.journal (Permission denied)." in nowhere.stderr
    report = finish("--report", folder / "report")
    assert report.exit_code == 2
    assert f"--report {folder / 'report'} cannot be written:" in report.stderr


@pytest.mark.parametrize("flag", ["--report", "--plot"])
def test_what_is_written_at_the_end_is_refused_before_the_work(
    job: Job, tmp_path: Path, flag: str
) -> None:
    gold = () if flag == "--report" else ("--gold", "text")
    nowhere = job(*gold, flag, tmp_path / "none" / "file")
    assert nowhere.exit_code == 2
    assert f"{flag} {tmp_path / 'none' / 'file'} cannot be written: the folder" in nowhere.stderr
    assert not job.out.exists()
    for other, name in ((job.out, "--output"), (job.rows, "-i")):
        before = job.rows.read_bytes()
        same = job(*gold, flag, other)
        assert same.exit_code == 2
        told = "is not a" if other == job.rows else f"{flag} and {name} name the same file"
        assert told in same.stderr
        assert not job.out.exists()
        assert job.rows.read_bytes() == before


def test_json_is_lines_whatever_the_output_is_called(job: Job, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert job("--json", out=out).exit_code == 0
    assert json.loads(out.read_bytes().splitlines()[0])["line"] == 1
    first, *_ = (tmp_path / "out.csv.journal").read_bytes().splitlines(keepends=True)
    (tmp_path / "out.csv.journal").write_bytes(first)
    refused = job("--resume", out=out)
    assert refused.exit_code == 2
    assert "to changed from 'jsonl' to 'csv'" in refused.stderr


# ------------------------------------------------------------------ odd rows


def test_a_cell_that_is_longer_than_csv_readers_like_is_read_again(
    job: Job, tmp_path: Path
) -> None:
    job.rows = tmp_path / "rows.jsonl"
    texts = [f"{'a ' * 100_000}{n}" for n in range(100)]
    job.rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    whole, job.out = tmp_path / "whole.csv", tmp_path / "out.csv"
    assert job(out=whole).exit_code == 0
    shutil.copy(whole, job.out)
    lines = (tmp_path / "whole.csv.journal").read_bytes().splitlines(keepends=True)
    job.journal.write_bytes(b"".join(lines[:2]))
    assert job("--resume").exit_code == 0
    assert job.out.read_bytes() == whole.read_bytes()


def test_an_id_that_stands_on_both_sides_of_a_break_is_told(job: Job, tmp_path: Path) -> None:
    job.rows = tmp_path / "rows.jsonl"
    names = ["same" if n in (5, 200) else n for n in range(ROWS)]
    job.rows.write_text("".join(f'{{"id": {json.dumps(n)}, "text": "a"}}\n' for n in names))
    job.broken()
    told = "id 'same' is not unique: it is on line 6 and on line 201"
    assert told in job("--resume").stderr


def test_a_report_is_the_same_whether_the_job_was_broken_off(job: Job, tmp_path: Path) -> None:
    job.rows, job.out = tmp_path / "rows.jsonl", tmp_path / "out.csv"
    texts = [("a " * (n % 7) + "b " * (n % 5) + "c", "ab"[n % 2]) for n in range(ROWS)]
    job.rows.write_text("".join(f'{{"text": "{t}", "gold": "{g}"}}\n' for t, g in texts))
    reports = []
    for flag in ("--overwrite", "--resume"):
        job.broken() if flag == "--resume" else None
        report = tmp_path / f"report{flag}.json"
        assert job(flag, "--gold", "gold", "--report", report).exit_code == 0
        facts = json.loads(report.read_text())
        reports.append((facts["gold"], facts["labels"], facts["rows_with_tiny_label_mass"]))
    assert reports[0] == reports[1]


def test_a_number_that_parquet_has_no_type_for_is_a_text(job: Job, tmp_path: Path) -> None:
    import pyarrow.parquet

    job.rows, job.out = tmp_path / "rows.jsonl", tmp_path / "out.parquet"
    job.rows.write_text('{"text": "a", "n": 18446744073709551615}\n{"text": "b", "n": 1}\n')
    done = job()
    assert done.exit_code == 0, done.output
    numbers = [row["n"] for row in pyarrow.parquet.read_table(job.out).to_pylist()]
    assert numbers == ["18446744073709551615", "1"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1.5, 2**53 + 1], ["1.5", "9007199254740993"]),
        ([1.5, -(2**63) + 1], ["1.5", "-9223372036854775807"]),
        ([1.5, 2**53], [1.5, 2.0**53]),
        ([1.5, 2**60], [1.5, 2.0**60]),
        ([1.5, None, -3], [1.5, None, -3.0]),
        ([2**53 + 1, 2, None], [2**53 + 1, 2, None]),
        ([True, 1], ["true", "1"]),
    ],
)
def test_a_column_of_numbers_holds_each_as_it_is(
    job: Job, tmp_path: Path, given: list[object], expected: list[object]
) -> None:
    import pyarrow.parquet

    job.rows, job.out = tmp_path / "rows.jsonl", tmp_path / "out.parquet"
    rows = [{"text": "a", "n": number} for number in given]
    job.rows.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert job().exit_code == 0
    columns = {"out": pyarrow.parquet.read_table(job.out)["n"].to_pylist()}

    # Parts have types of their own.
    parts = [tmp_path / f"part{number}.parquet" for number in range(1, len(given) + 1)]
    for number, part in enumerate(parts, 1):
        assert job("--shard", f"{number}/{len(given)}", out=part).exit_code == 0
    merged = tmp_path / "merged.parquet"
    assert job._infer_cli("merge", merged, *parts).exit_code == 0
    columns["merged"] = pyarrow.parquet.read_table(merged)["n"].to_pylist()
    assert columns == {"out": expected, "merged": expected}
    for column in columns.values():
        assert [*map(type, column)] == [*map(type, expected)]


def test_an_error_of_a_library_says_how_to_resume(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: object) -> None:
        raise ArithmeticError("a library's own words")

    job.out = tmp_path / "out.parquet"
    with monkeypatch.context() as patch:
        patch.setattr("core_cli.writing.parquet.write", write)
        broken = job()
    assert broken.exit_code == 1
    assert "Interrupted: " in broken.stderr
    assert "ArithmeticError: a library's own words" in broken.stderr
    assert job("--resume").exit_code == 0


def test_a_broken_first_row_does_not_hide_that_the_field_is_missing(
    job: Job, tmp_path: Path
) -> None:
    job.rows = tmp_path / "rows.jsonl"
    job.rows.write_text('{"text": \n{"text": "a"}\n{"text": "b"}\n')
    refused = job("--text-field", "txt")
    assert refused.exit_code == 2
    assert "line 2 has no 'txt'" in refused.stderr
    assert not job.out.exists()
