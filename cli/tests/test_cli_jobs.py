"""Jobs: rows from a file into a file, in every form, and on after any end, byte for byte."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core_cli.jobs.journal import Block, Journal
from core_cli.rows.asker import Asker, Known

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

ROWS = 700  # more than the blocks of 32, 64, 128, 256 hold

Job = Callable[..., "Result"]


@pytest.fixture
def job(infer_cli: InferCli, fake_model: Path) -> Job:
    """``infer-cli classify`` with two labels."""

    def run(*flags: str | Path) -> Result:
        result = infer_cli("classify", "-m", fake_model, "--labels", "a,b", *flags)
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """JSON lines in which every third text repeats, and some fail."""
    file = tmp_path / "rows.jsonl"
    with open(file, "w") as stream:
        for n in range(ROWS):
            text = "BOOM" if n % 100 == 50 else "a b a" if n % 3 == 0 else f"b b {n}"
            stream.write(json.dumps({"id": n, "text": text, "gold": "ab"[n % 2]}) + "\n")
    return file


def written(file: Path) -> list[dict[str, Any]]:
    """The rows of an output, whatever its form."""
    data = file.read_bytes().decode() if file.suffix != ".parquet" else ""
    if file.suffix == ".parquet":
        found: list[dict[str, Any]] = pyarrow.parquet.read_table(file).to_pylist()
        return found
    if file.suffix in (".csv", ".tsv"):
        separator = "," if file.suffix == ".csv" else "\t"
        return list(csv.DictReader(io.StringIO(data, newline=""), delimiter=separator))
    return json.loads(data) if file.suffix == ".json" else [*map(json.loads, data.split("\n")[:-1])]


@pytest.mark.parametrize("form", ["jsonl", "json", "csv", "tsv", "parquet"])
def test_every_row_comes_once_in_every_form(
    job: Job, rows: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"out.{form}"
    done = job("-i", rows, "-o", out)
    assert done.exit_code == 5, done.output
    assert "7 of 700 rows failed." in done.stderr
    found = written(out)
    assert [int(row["line"]) for row in found] == list(range(1, ROWS + 1))
    assert [int(row["id"]) for row in found] == list(range(ROWS))
    assert [str(row["gold"]) for row in found] == ["ab"[n % 2] for n in range(ROWS)]
    failed = [n for n, row in enumerate(found) if row["error"]]
    assert failed == [50, 150, 250, 350, 450, 550, 650]
    assert {row["label"] or None for row in found} == {"a", "b", None}


@pytest.mark.parametrize("form", ["csv", "tsv", "json", "parquet"])
def test_an_output_is_read_again_as_an_input(
    job: Job, rows: Path, tmp_path: Path, form: str
) -> None:
    first, second = tmp_path / f"first.{form}", tmp_path / "second.jsonl"
    job("-i", rows, "-o", first, "--limit", "40")
    again = job("-i", first, "-o", second)
    assert again.exit_code == 0, again.output
    before, after = written(first), written(second)
    assert [row["text"] for row in after] == [row["text"] for row in before]
    assert [str(row["input_label"]) for row in after] == [str(row["label"]) for row in before]


def test_text_holds_the_labels_alone(job: Job, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    job("-i", rows, "-o", out, "--limit", "60")
    lines = out.read_text().splitlines()
    assert len(lines) == 60
    assert (lines[0], lines[50]) == ("a", "")


@pytest.mark.parametrize(
    ("keep", "names"),
    [("all", {"line", "id", "text", "gold"}), ("id", {"line", "id"}), ("none", {"line"})],
)
def test_what_is_kept(job: Job, rows: Path, tmp_path: Path, keep: str, names: set[str]) -> None:
    out = tmp_path / "out.csv"
    job("-i", rows, "-o", out, "--keep", keep, "--limit", "3")
    answer = {"label", "probability", "margin", "label_mass", "error"}
    assert set(written(out)[0]) == names | answer


# ------------------------------------------------------------------ going on


class Killed(BaseException):
    """Stands for an end that no handler sees."""


def broken_at(monkeypatch: pytest.MonkeyPatch, where: str, call: int) -> None:
    """Let the ``call``-th use of a part of the job be its last."""
    import importlib

    module, _, name = where.rpartition(".")
    owner = getattr(
        importlib.import_module("core_cli.jobs." + module.split(".")[0]), module.split(".")[1]
    )
    original, calls = getattr(owner, name), []

    def dying(self: Any, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            if name == "add" and where.startswith("target"):
                torn = arguments[0][: len(arguments[0]) // 2]
                self._file.seek(self.end)
                self._file.write(torn)  # half of the block is on the disk
            raise Killed
        return original(self, *arguments)

    monkeypatch.setattr(owner, name, dying)


FAULTS = [
    *(("journal.Target.add", n) for n in (1, 2, 4, 5)),
    *(("journal.Journal.add", n) for n in (1, 3, 5)),
    ("journal.Journal.begin_anew", 1),
    ("journal.Journal.finish", 1),
    ("job.Job.finish", 1),
]


@pytest.mark.parametrize(
    ("form", "dedupe"),
    [("jsonl", "--dedupe"), ("csv", "--dedupe"), ("json", "--no-dedupe"), ("parquet", "--dedupe")],
)
def test_a_job_that_was_killed_anywhere_goes_on_to_the_same_bytes(
    job: Job, rows: Path, tmp_path: Path, form: str, dedupe: str
) -> None:
    whole = tmp_path / f"whole.{form}"
    job("-i", rows, "-o", whole, dedupe)
    for number, (where, call) in enumerate(FAULTS):
        out = tmp_path / f"{number}.{form}"
        with pytest.MonkeyPatch.context() as patch:
            broken_at(patch, where, call)
            with pytest.raises(Killed):
                job("-i", rows, "-o", out, dedupe)
        on = job("-i", rows, "-o", out, dedupe, "--resume")
        assert on.exit_code == 5, (where, call, on.output)
        assert "7 of 700 rows failed." in on.stderr
        assert out.read_bytes() == whole.read_bytes(), (where, call)
        assert not list(tmp_path.glob(f"{number}.*.rows"))


@pytest.fixture
def inexact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model whose figures move with the size of its batch, as those of a real one do."""
    asked = Asker._asked

    def moved(self: Asker, prompts: list[str], cancel: threading.Event) -> Any:
        found = asked(self, prompts, cancel)
        for answer, error in found:
            if error is None:
                answer["label_mass"] = 0.75 + len(prompts) / 1e4
        return found

    monkeypatch.setattr(Asker, "_asked", moved)


@pytest.mark.usefixtures("inexact")
@pytest.mark.parametrize("largest", [2**26, 800_000])  # the latter is full in the fourth block
@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_what_was_known_of_equal_prompts_is_known_again(
    job: Job, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, largest: int
) -> None:
    monkeypatch.setattr(Known.__init__, "__defaults__", (largest,))
    whole, out = tmp_path / f"whole.{form}", tmp_path / f"out.{form}"
    job("-i", rows, "-o", whole)
    with pytest.MonkeyPatch.context() as patch:
        broken_at(patch, "journal.Target.add", 4)
        with pytest.raises(Killed):
            job("-i", rows, "-o", out)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Asker, "recall", lambda *_: None)
        forgetful = tmp_path / f"forgetful.{form}"
        for end in ("", ".journal"):
            shutil.copy(f"{out}{end}", f"{forgetful}{end}")
        job("-i", rows, "-o", forgetful, "--resume")
    job("-i", rows, "-o", out, "--resume")
    assert out.read_bytes() == whole.read_bytes()
    assert forgetful.read_bytes() != whole.read_bytes()  # or this test would see nothing


def test_a_finished_job_has_nothing_left_to_do(job: Job, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    job("-i", rows, "-o", out)
    before = out.read_bytes()
    again = job("-i", rows, "-o", out, "--resume")
    assert (again.exit_code, out.read_bytes()) == (0, before)
    assert "is already complete" in again.stderr


def test_resume_begins_where_nothing_was_begun(job: Job, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    assert job("-i", rows, "-o", out, "--resume", "--limit", "5").exit_code == 0
    assert len(written(out)) == 5


def test_an_existing_output_is_refused(job: Job, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine\n")
    refused = job("-i", rows, "-o", out)
    assert refused.exit_code == 2
    assert "out.jsonl exists, but no journal" in refused.stderr
    for flag in ("--resume", "--overwrite"):
        unknown = job("-i", rows, "-o", out, flag)
        assert unknown.exit_code == 2
        assert "but no journal" in unknown.stderr
    assert out.read_text() == "mine\n"
    assert not out.with_name("out.jsonl.journal").exists()
    out.write_bytes(b"")  # nothing to lose
    assert job("-i", rows, "-o", out, "--overwrite", "--limit", "2").exit_code == 0
    assert len(written(out)) == 2
    there = job("-i", rows, "-o", out, "--limit", "2")
    assert (
        "already exists. Use --resume to continue its job, or --overwrite to start over."
        in there.stderr
    )


def test_what_is_to_be_overwritten_stays_until_the_work_begins(
    job: Job, rows: Path, tmp_path: Path, fake_model: Path
) -> None:
    out = tmp_path / "out.jsonl"
    job("-i", rows, "-o", out, "--limit", "3")
    before = out.read_bytes(), out.with_name("out.jsonl.journal").read_bytes()
    (fake_model / "error.txt").write_text("it cannot be loaded today")
    failed = job("-i", rows, "-o", out, "--overwrite")
    assert failed.exit_code == 1
    assert (out.read_bytes(), out.with_name("out.jsonl.journal").read_bytes()) == before


@pytest.fixture
def begun(job: Job, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The output of a job that was killed in its third block."""
    out = tmp_path / "out.csv"
    with pytest.MonkeyPatch.context() as patch:
        broken_at(patch, "journal.Target.add", 3)
        with pytest.raises(Killed):
            job("-i", rows, "-o", out, "--template", "{text} is")
    return out


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--template", "{text} was"], "template changed from '{text} is' to '{text} was'"),
        (["--template", "{text} is", "--labels", "a,c"], "--labels changed from 'a', 'b' to"),
        (["--template", "{text} is", "--keep", "id"], "keep changed from 'all' to 'id'"),
        (["--template", "{text} is", "--backend", "fake_plain"], "backend changed from 'fake'"),
        (["--template", "{text} is", "-O", "speed=3"], "load options changed from"),
        (
            ["--template", "{text} is", "--temperature", "0.5"],
            "options changed from temperature 0.0 to temperature 0.5",
        ),
        (["--template", "{text} is", "--limit", "3"], "--limit changed from none to 3"),
        (["--template", "{text} is", "--no-dedupe"], "--dedupe changed from on to off"),
    ],
)
def test_another_job_does_not_go_on(
    job: Job, rows: Path, begun: Path, flags: list[str], told: str
) -> None:
    before = begun.read_bytes()
    refused = job("-i", rows, "-o", begun, "--resume", *flags)
    assert refused.exit_code == 2, refused.output
    assert told in refused.stderr
    assert begun.read_bytes() == before


def test_another_input_or_model_does_not_go_on(
    job: Job, rows: Path, begun: Path, fake_model: Path
) -> None:
    arguments = ("-i", rows, "-o", begun, "--resume", "--template", "{text} is")
    data = rows.read_bytes()
    rows.write_bytes(data + b'{"text": "more"}\n')
    assert "input has changed" in job(*arguments).stderr
    rows.write_bytes(data)
    weights = fake_model / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    assert "model has changed" in job(*arguments).stderr


def test_what_was_spoilt_behind_is_written_anew(job: Job, rows: Path, begun: Path) -> None:
    arguments = ("-i", rows, "-o", begun, "--resume", "--template", "{text} is")
    with open(begun, "r+b") as stream:  # a byte of the second block
        stream.seek(3000)
        stream.write(b"\0")
    journal = begun.with_name(begun.name + ".journal")
    journal.write_bytes(journal.read_bytes() + b'{"rows": 12')
    assert job(*arguments).exit_code == 5
    assert len(written(begun)) == ROWS
    assert b"\0" not in begun.read_bytes()


LINE = {"rows": 9, "end": 800, "crc": 5, "cost": [9, 0, 0, 0, 0], "seconds": 0.5}
ODD: dict[str, tuple[object, ...]] = {
    "rows": (-1, True, 1.0),
    "end": (699, 10**400),
    "crc": (2**32,),
    "cost": ([0] * 6, [-1], {}),
    "seconds": (math.nan, math.inf, -1, "1"),
    "done": (-1, "x"),
}
TORN = (
    *(b"", b"{", b'{"rows": 12', b"\xff\n", b"null\n", b'{"a": 1}\n'),
    *(json.dumps({**LINE, name: odd}).encode() + b"\n" for name in ODD for odd in ODD[name]),
    b'{"done": 1, "crc": "x"}\n',
    b'{"done": ' + b"9" * 5_000 + b"}\n",
)


@pytest.mark.parametrize("torn", TORN, ids=range(len(TORN)))
def test_a_journal_is_as_good_as_its_whole_lines(tmp_path: Path, torn: bytes) -> None:
    target, job = tmp_path / "out.csv", {"command": "classify"}
    target.write_bytes(b"x" * 300)
    known = [Block(32, 100, 1, (32, 0), 0.5), Block(64, 300, 2), Block(128, 700, 3)]
    with Journal(target) as journal:
        journal.begin_anew(job)
        for block in known:
            journal.add(block)
    whole = journal.path.read_bytes()
    journal.path.write_bytes(whole + torn)

    with Journal(target) as again:
        assert (again.job, again.blocks, again.done) == (job, known, None)
        again.cut(3)
        assert journal.path.read_bytes() == whole
        again.cut(1)
        again.add(known[1])
        again.finish(300)
    with Journal(target) as last:
        assert (last.job, last.blocks, last.done) == (job, known[:2], 300)
        assert last.changed() == ""
        target.write_bytes(b"x" * 299 + b"y")
        assert last.changed() == "was finished with other bytes than it has now"
        target.write_bytes(b"x" * 299)
        assert last.changed() == "was finished with 300 bytes, and has 299 now"
        target.unlink()
        assert last.changed() == "was finished with 300 bytes, and is gone"
        last.cut(2)
        last.add(known[2])
    assert journal.path.read_bytes() == whole


def test_two_jobs_do_not_write_one_output(
    infer_cli: InferCli, job: Job, tmp_path: Path, fake_model: Path
) -> None:
    slow, out = tmp_path / "slow.txt", tmp_path / "out.jsonl"
    slow.write_text("SLOW\n")
    arguments = ("classify", "-m", fake_model, "-i", slow, "-o", out, "--labels", "a,b")
    with infer_cli.start(*arguments, "-v") as process:
        assert process.stderr is not None
        while not process.stderr.readline().startswith(b"loaded in"):
            pass
        try:
            second = job("-i", slow, "-o", out, "--resume")
            assert second.exit_code == 2
            assert "Another running job is writing" in second.stderr
        finally:
            process.kill()


# ------------------------------------------------------------------ what cannot be written


def test_a_full_disk_keeps_whole_blocks(
    job: Job, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    job("-i", rows, "-o", whole)
    from core_cli.jobs.journal import Target

    write, room = Target._write, [30_000]

    def full(self: Target, data: memoryview) -> int:
        if not room[0]:
            raise OSError(28, "No space left on device")
        written = write(self, data[: room[0]])
        room[0] -= written
        return written

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Target, "_write", full)
        ended = job("-i", rows, "-o", out)
    assert ended.exit_code == 1
    assert "No space left on device" in ended.stderr
    assert "Interrupted: 96 rows written" in ended.stderr
    assert "--resume" in ended.stderr
    assert len(written(out)) == 96  # the torn block was taken back
    assert job("-i", rows, "-o", out, "--resume").exit_code == 5
    assert out.read_bytes() == whole.read_bytes()


def test_a_place_that_cannot_be_written(job: Job, rows: Path, tmp_path: Path) -> None:
    nowhere = job("-i", rows, "-o", tmp_path / "none" / "out.jsonl")
    assert nowhere.exit_code == 2
    assert "Cannot write the journal" in nowhere.stderr
    folder = job("-i", rows, "-o", tmp_path)
    assert folder.exit_code == 2
    assert "is a directory" in folder.stderr
    itself = job("-i", rows, "-o", rows, "--overwrite")
    assert itself.exit_code == 2
    assert "-o and -i name the same file" in itself.stderr


def test_parquet_without_pyarrow_is_refused_before_the_work(
    job: Job, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    before = sorted(tmp_path.rglob("*"))
    refused = job("-i", rows, "-o", tmp_path / "out.parquet")
    assert refused.exit_code == 2
    assert "Parquet requires pyarrow. Install it with: pip install" in refused.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--resume"], "--resume requires -o OUT."),
        (["--shard", "1/2"], "--shard requires -o OUT."),
        (["-o", "x.jsonl", "--resume", "--overwrite"], "Give --resume or --overwrite, not both."),
        (["--template", "{text}", "--template-file", "{i}"], "--template or --template-file"),
        (
            ["--json", "--to", "csv"],
            "--json is an alias for --to jsonl and cannot be combined with --to csv.",
        ),
        (["--to", "parquet"], "Parquet cannot be written to stdout."),
        (["-o", "x", "--show-prompt"], "Give --show-prompt or --output, not both."),
        (["-o", "x", "--shard", "3/2"], "expected I/N with I from 1 to N, got '3/2'"),
        (["--format", "text", "--id-field", "x"], "--id-field requires fields"),
    ],
)
def test_flags_that_contradict(job: Job, rows: Path, flags: list[str], told: str) -> None:
    refused = job("-i", rows, *(flag.format(i=rows, text="{text}") for flag in flags))
    assert refused.exit_code == 2
    assert told in refused.stderr


def test_a_job_reads_from_a_file(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    done = infer_cli("classify", "-m", fake_model, "-o", tmp_path / "out.jsonl", stdin="x\n")
    assert done.exit_code == 2
    assert "-o requires -i FILE" in done.stderr


# ------------------------------------------------------------------ parts


def test_shards_hold_every_row_once_and_merge_to_the_whole(
    job: Job, infer_cli: InferCli, rows: Path, tmp_path: Path
) -> None:
    for form in ("jsonl", "csv", "parquet"):
        parts = [tmp_path / f"part{n}.{form}" for n in (1, 2, 3)]
        for n, part in enumerate(parts, 1):
            assert job("-i", rows, "-o", part, "--shard", f"{n}/3").exit_code == 5
        whole, merged = tmp_path / f"whole.{form}", tmp_path / f"merged.{form}"
        job("-i", rows, "-o", whole)
        done = infer_cli("merge", merged, *reversed(parts))
        assert done.exit_code == 0, done.output
        assert written(merged) == written(whole)  # the fake is exact, whatever runs beside a row
        missing = infer_cli("merge", tmp_path / "two", *parts[:2])
        assert missing.exit_code == 2
        assert "Shard 3 of 3 is missing" in missing.stderr
        twice = infer_cli("merge", tmp_path / "two", parts[0], *parts)
        assert twice.exit_code == 2
        assert "is given twice" in twice.stderr


def test_a_part_that_is_not_finished_is_not_merged(
    job: Job, infer_cli: InferCli, begun: Path, tmp_path: Path
) -> None:
    refused = infer_cli("merge", tmp_path / "all.csv", begun)
    assert refused.exit_code == 2
    assert "is incomplete" in refused.stderr


# ------------------------------------------------------------------ what is told


def test_a_job_shows_on_a_terminal_how_far_it_is(
    infer_cli: InferCli, fake_model: Path, rows: Path, tmp_path: Path
) -> None:
    arguments = ("classify", "-m", fake_model, "--labels", "a,b", "-i", rows, "-o")
    code, shown = infer_cli.on_terminal(*arguments, tmp_path / "out.csv")
    assert code == 5
    assert "\x1b[2Kloading " in shown
    assert "\x1b[2K480 rows, " in shown  # after the fourth block
    assert "7 failed; " in shown
    code, shown = infer_cli.on_terminal(*arguments, tmp_path / "quiet.csv", "--no-progress")
    assert code == 5
    assert "\x1b[2K" not in shown


def test_the_summary_and_the_report(job: Job, rows: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = job("-i", rows, "-o", tmp_path / "out.jsonl", "--report", report)
    facts = json.loads(report.read_text())
    assert (facts["rows"], facts["failed"]) == (ROWS, 7)
    assert facts["failures"] == {"OutOfMemoryError": 7}
    counts = {label: found["rows"] for label, found in facts["labels"].items()}
    assert sum(counts.values()) == ROWS - 7
    labels = [row["label"] for row in written(tmp_path / "out.jsonl")]
    assert counts == {label: labels.count(label) for label in ("a", "b")}
    equal = sum(n % 3 == 0 and n % 100 != 50 for n in range(ROWS)) - 1
    assert facts["rows_answered_by_an_equal_one"] >= equal
    for words in (
        "700 rows in ",
        "  a: ",
        "7 failed: 7 OutOfMemoryError",
        "answered by a duplicate",
    ):
        assert words in done.stderr


def test_the_summary_of_a_job_that_went_on_is_of_the_whole(
    job: Job, rows: Path, begun: Path, tmp_path: Path
) -> None:
    arguments = ("-i", rows, "--template", "{text} is", "--report")
    job(*arguments, tmp_path / "on.json", "-o", begun, "--resume")
    job(*arguments, tmp_path / "whole.json", "-o", tmp_path / "whole.csv")
    on, whole = (json.loads((tmp_path / name).read_text()) for name in ("on.json", "whole.json"))
    assert on["rows"] == whole["rows"] == ROWS
    assert on["failed"] == whole["failed"]
    assert {k: v["rows"] for k, v in on["labels"].items()} == {
        k: v["rows"] for k, v in whole["labels"].items()
    }


def test_equal_prompts_are_asked_once(job: Job, tmp_path: Path) -> None:
    import importlib

    batches = importlib.import_module("core_fake").BATCHES
    rows = tmp_path / "rows.txt"
    rows.write_text("a x\nb y\n" * 200)
    for flag, asked in (("--dedupe", 2), ("--no-dedupe", 400)):
        batches.clear()
        job("-i", rows, "-o", tmp_path / f"{flag}.jsonl", flag)
        assert sum(batches) == asked
    same = [written(tmp_path / f"{flag}.jsonl") for flag in ("--dedupe", "--no-dedupe")]
    assert same[0] == same[1]


def test_a_job_keeps_nothing_between_blocks(job: Job, rows: Path, tmp_path: Path) -> None:
    """What a backend keeps of earlier blocks is not there when a job goes on."""
    import importlib

    loaded = importlib.import_module("core_fake").FAKE.loaded
    for flags, options in (
        (("-o", tmp_path / "out.csv"), {"prefix_cache": 0}),
        (("-o", tmp_path / "kept.csv", "-O", "prefix_cache=7"), {"prefix_cache": 7}),
        ((), {}),
    ):
        job("-i", rows, "--limit", "3", "--backend", "fake", *flags)
        assert loaded[-1].options == options


def test_a_small_margin_is_unsure(job: Job, tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.txt", tmp_path / "out.jsonl"
    rows.write_text("a b\na a a\n")
    job("-i", rows, "-o", out, "--min-margin", "0.3")
    assert [row["label"] for row in written(out)] == ["unsure", "a"]


def test_labels_beside_the_right_ones(job: Job, rows: Path, begun: Path, tmp_path: Path) -> None:
    for out, flags in ((tmp_path / "whole.csv", ()), (begun, ("--resume",))):
        report, plot = tmp_path / "report.json", tmp_path / "plot.svg"
        told = job(
            *("-i", rows, "-o", out, "--template", "{text} is", "--gold", "gold", *flags),
            *("--report", report, "--plot", plot),
        )
        found = json.loads(report.read_text())["gold"]
        rights = [row["label"] == row["gold"] for row in written(out) if not row["error"]]
        assert (found["answered"], found["right"]) == (len(rights), sum(rights))
        assert f"correct: {sum(rights)} of {len(rights)}, " in told.stderr
        assert sum(sum(row.values()) for row in found["confusion"].values()) == len(rights)
        ElementTree.parse(plot)


def test_a_missing_gold_field_is_refused(job: Job, rows: Path, tmp_path: Path) -> None:
    refused = job("-i", rows, "-o", tmp_path / "out.csv", "--gold", "truth", "--limit", "3")
    assert refused.exit_code == 2
    assert "line 1 has no 'truth'" in refused.stderr
    assert job("-i", rows, "--plot", "x.svg").exit_code == 2


def test_the_prompt_is_shown(job: Job, rows: Path) -> None:
    shown = job("-i", rows, "--template", r"Text: {text}\nId {id}:", "--show-prompt")
    assert (shown.exit_code, shown.stdout) == (0, "Text: a b a\nId 0:\n")
    assert "label mass 0.75" in shown.stderr


def test_a_dry_run_writes_nothing(job: Job, rows: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    done = job("-i", rows, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "rows: 700\n" in done.stdout
    assert sorted(tmp_path.iterdir()) == before


TEXTS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    | st.sampled_from(["a", "b a", "BOOM"]),
    min_size=1,
    max_size=40,
)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(TEXTS, st.integers(1, 12), st.sampled_from(["csv", "jsonl", "json", "tsv", "txt"]))
def test_any_rows_end_in_the_same_bytes(
    job: Job, tmp_path: Path, texts: list[str], fault: int, form: str
) -> None:
    rows, out, whole = tmp_path / "rows.json", tmp_path / f"out.{form}", tmp_path / f"whole.{form}"
    rows.write_text(json.dumps([{"id": n, "text": text} for n, text in enumerate(texts)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("core_cli.rows.asker.FIRST_BLOCK", 2)
        patch.setattr("core_cli.rows.asker.LARGEST_BLOCK", 5)
        code = job("-i", rows, "-o", whole, "--overwrite").exit_code
        with pytest.MonkeyPatch.context() as broken:
            broken_at(broken, "journal.Target.add", fault)
            with contextlib.suppress(Killed):
                job("-i", rows, "-o", out, "--overwrite")
        on = job("-i", rows, "-o", out, "--resume")
    assert on.exit_code in (code, 0), on.output  # 0: it was finished before
    assert out.read_bytes() == whole.read_bytes()
    if form != "txt":
        found = written(out)
        assert [int(row["line"]) > 0 for row in found] == [True] * len(texts)
        assert [row["text"] for row in found] == texts
