"""Which form an input is found to have, under any name and however its bytes arrive."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import threading
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cli.tests.conftest import MAIN
from core_cli.reading import source
from core_cli.reading.row import Fields

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

ANY = Fields(text_wanted=False)
Run = Callable[..., "Result"]


class Dripping(io.RawIOBase):
    """A pipe whose writer is slow: a few bytes at a time."""

    def __init__(self, data: bytes, size: int = 1) -> None:
        self._data, self._size = data, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = self._data[: min(self._size, len(buffer))]
        self._data = self._data[len(part) :]
        buffer[: len(part)] = part
        return len(part)


def found(data: bytes, name: str = "-", fields: Fields = ANY, form: str = "auto") -> str:
    """The form that an input is found to have."""
    return source.Source(io.BytesIO(data), name, form, fields).form


def refused(data: bytes, name: str = "-", fields: Fields = ANY, form: str = "auto") -> str:
    """Why an input is refused."""
    with pytest.raises(click.UsageError) as error:
        found(data, name, fields, form)
    return error.value.message


@pytest.fixture
def run(infer_cli: InferCli, fake_model: Path) -> Run:
    """``infer-cli classify``; never a traceback."""

    def classify(*flags: str | Path, stdin: str | bytes = "") -> Result:
        result = infer_cli("classify", "-m", fake_model, *flags, stdin=stdin)
        assert "Traceback" not in result.output
        return result

    return classify


# ------------------------------------------------------------------ what is what

TABLE = b"id,text\n1,good\n2,bad\n"


@pytest.mark.parametrize(
    ("data", "form"),
    [
        (TABLE, "csv"),
        (TABLE.rstrip(), "csv"),
        (TABLE.replace(b"\n", b"\r\n"), "csv"),
        (b"\xef\xbb\xbf" + TABLE, "csv"),
        (TABLE.replace(b",", b";"), "csv"),
        (TABLE.replace(b",", b"|"), "csv"),
        (TABLE.replace(b",", b"\t"), "tsv"),
        (b'"id","text"\n"1","a, b\nc"\n', "csv"),
        (b"id,Review\n" + b'1,"two\nlines"\n' * 30, "csv"),
        (b"id,text\n" + b"1," + b"x" * 100_000 + b"\n", "csv"),
        (b"Hello, world\nGoodbye, world\n", "text"),
        (b"Hello, world\n", "text"),
        (b"one,two\n", "text"),
        (b"text\nlabel\n", "text"),
        (b"1,2\n3,4\n", "text"),
        (b"yes,yes\nno,no\n", "text"),
        (b"Hi,there\nyou\n", "text"),
        (b"a\rb,c\nd,e\n", "text"),
        (b"[INST] text [/INST]\n", "text"),
        (b"[ ] buy milk\n[x] sell milk\n", "text"),
        (b"[{name}] has won\n", "text"),
        (b'["a", "b"]\n', "text"),
        (b"{name} has won\n", "text"),
        (b"<b>{}</b>\n", "text"),
        (b"", "text"),
        (b"\xff\xfa\n", "text"),
        (b'{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        (b'{"text": "a"}', "jsonl"),
        (b'\n\n{"text": "a"}\n', "jsonl"),
        (b'{"text": "a"\n{"text": "b"}\n', "jsonl"),
        (b'{"text": "' + b"x" * 100_000 + b'"}\n{"text": "b"}\n', "jsonl"),
        (b'{\n "text": "a"\n}\n{\n "text": "b"\n}\n', "json"),
        (b'{"text": "a",\n "id": 1}\n', "json"),
        (b'{"messages": [\n{"role": "user", "content": "a"}]}\n', "json"),
        (b'[{"text": "a"}, {"text": "b"}]', "json"),
        (b'[\r  {\r    "text": "a"\r  }\r]', "json"),
        (b" []\n", "json"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_the_form_of_an_input_without_a_name(data: bytes, form: str) -> None:
    assert found(data) == form
    # Whatever a pipe holds at the first look.
    for size in (1, 7):
        stream = io.BufferedReader(Dripping(data, size))
        assert source.Source(stream, "-", "auto", ANY).form == form


@given(
    st.binary(max_size=60)
    | st.lists(st.sampled_from([*TABLE.split(), b",", b"\n", b'"', b"\r", b"{", b"["])).map(
        b"".join
    )
)
@example(b"\x00\x01")
@example(b"a,b\n\n")
@example(b"a,\xff\nb,c\n")
def test_any_bytes_have_a_form_or_are_refused_and_are_all_read(data: bytes) -> None:
    forms = set()
    for size in (1, 3, 100):
        stream = io.BufferedReader(Dripping(data, size))
        try:
            at = source.Source(stream, "-", "auto", ANY)
        except click.UsageError as error:
            forms.add(error.message)
            continue
        forms.add(at.form)
        assert at._stream.read() == data
    assert len(forms) == 1


@pytest.mark.parametrize("form", ["text", "jsonl", "json", "csv", "tsv"])
@given(data=st.binary(max_size=80))
@example(data=b"\xef\xbb\xbf\xff")
@example(data=b"text\n\xff\n")
def test_any_bytes_in_any_form_are_rows_or_refused(form: str, data: bytes) -> None:
    try:
        rows = list(source.Source(io.BytesIO(data), "-", form, ANY).rows())
    except click.UsageError as error:
        error.message.encode()
        return
    for row in rows:
        json.dumps([row.text, dict(row.fields), str(row.error)], ensure_ascii=False).encode()
    assert [row.line for row in rows] == sorted(row.line for row in rows)


@pytest.mark.parametrize(
    ("name", "data", "form"),
    [
        ("a.CSV", b"Hello, world\n", "csv"),
        ("a.tab", b"a\n", "tsv"),
        ("a.txt", TABLE, "csv"),
        ("a.jsonl", b"oops\n", "jsonl"),
        ("a.ndjson", b'[{"text": "a"}]', "json"),
        ("a.json", b'{"text": "a"}\n{"text": "b"}\n', "jsonl"),
        ("a.json", b'["a"]', "json"),
        ("a.json", b"\n", "jsonl"),
    ],
)
def test_the_form_of_an_input_with_a_name(name: str, data: bytes, form: str) -> None:
    assert found(data, name) == form


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("data", [b"Hello,world\nBye,world\n", b"id,text\n1\n2,3,4\n"])
def test_what_may_be_a_table_is_refused_with_advice(run: Run, data: bytes) -> None:
    done = run(stdin=data)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Cannot tell whether stdin is CSV (columns" in done.stderr
    assert "Pass --format csv (and --text-field NAME) or --format text." in " ".join(
        done.stderr.split()
    )
    assert run("--format", "text", stdin=data).exit_code == 0


def test_a_field_makes_a_table_of_it(run: Run) -> None:
    done = run("--text-field", "Hello", stdin=b"Hello,world\nBye,you\n")
    assert done.stdout.splitlines()[1:] == ["2\tBye\tBye\t"]


def test_a_table_on_stdin_is_known_by_its_header(run: Run) -> None:
    done = run("--id-field", "id", stdin=TABLE)
    assert done.stdout.splitlines()[1:] == ["2\tgood\tgood\t", "3\tbad\tbad\t"]


@pytest.mark.parametrize("flag", ["--text-field", "--id-field"])
def test_lines_of_text_have_no_fields(run: Run, flag: str) -> None:
    done = run(flag, "x", stdin="one\ntwo\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"{flag} requires fields, but stdin looks like plain text" in done.stderr


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            TABLE.decode().encode("utf-16"),
            "is UTF-16, like Excel's 'Unicode text'. Pass --encoding utf-16, or",
        ),
        (TABLE.decode().encode("utf-16-le"), "iconv -f UTF-16LE -t UTF-8"),
        (TABLE.decode().encode("utf-16-be"), "iconv -f UTF-16BE -t UTF-8"),
        (TABLE.decode().encode("utf-32"), "is UTF-32"),
        (gzip.compress(TABLE, mtime=0), "is gzip-compressed"),
        (b"BZh91AY&SY12", "is bzip2-compressed"),
        (b"\xfd7zXZ\x00rest", "is xz-compressed"),
        (b"\x28\xb5\x2f\xfdrest", "is zstd-compressed"),
        (b"PK\x03\x04rest", "is a zip archive or an old Excel file. Save the table as CSV"),
        (b"\xd0\xcf\x11\xe0rest", "is a zip archive or an old Excel file."),
    ],
    ids=lambda value: repr(value)[:20],
)
@pytest.mark.parametrize("form", ["auto", "text", "csv", "jsonl", "json"])
def test_bytes_that_are_no_text_are_refused(data: bytes, words: str, form: str) -> None:
    for name in ("-", "my file.csv", "a.parquet", "a.jsonl", "a.json", "a.txt"):
        told = refused(data, name, form=form)
        assert words in told
        assert told.startswith("stdin is" if name == "-" else ("'my file.csv' is", "a."))
        if "| infer-cli" in told:
            assert ("... | " in told) == (name == "-")


def test_the_advice_works(run: Run, tmp_path: Path) -> None:
    import subprocess

    for coding, data in (
        ("utf-16", TABLE.decode().encode("utf-16")),
        ("utf-16-be", TABLE.decode().encode("utf-16-be")),
        ("gzip", gzip.compress(TABLE, mtime=0)),
        ("CR", TABLE.replace(b"\n", b"\r")),
    ):
        file = tmp_path / f"{coding} table.csv"
        file.write_bytes(data)
        told = refused(data, str(file))
        command = told.split(": ", 1)[1].split(" | infer-cli")[0]
        unpacked = subprocess.run(command, shell=True, check=True, capture_output=True).stdout
        assert unpacked.removeprefix(b"\xef\xbb\xbf") == TABLE


def test_a_zip_archive(run: Run, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.csv", "w") as archive:
        archive.writestr("a.csv", TABLE)
    done = run("-i", tmp_path / "a.csv")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is a zip archive" in done.stderr


def test_parquet_that_is_said_to_be_something_else() -> None:
    assert (
        refused(b"PAR1", "a.csv", form="csv") == "a.csv is Parquet, not csv. Remove --format csv."
    )


@pytest.mark.parametrize(
    ("data", "form", "kept"),
    [
        (b"one\rtwo\r", "auto", ""),
        (b"id,text\r1,good\r", "csv", ""),
        (b'{"text": "a"}\r{"text": "b"}\r', "jsonl", ""),
        (b"one\rtwo\r", "text", "text"),
        (b"one\r", "auto", "text"),
        (b"one\rtwo\nthree\n", "auto", "text"),
        (b'[{"text": "a"},\r{"text": "b"}]', "auto", "json"),
    ],
)
def test_carriage_returns_alone(data: bytes, form: str, kept: str) -> None:
    if kept:
        assert found(data, form=form) == kept
    else:
        assert "has carriage returns as line ends" in refused(data, form=form)


def test_text_that_is_called_json_is_refused() -> None:
    assert refused(b"Hello, world\n", "a.json").startswith("a.json is not JSON, despite its name")


# ------------------------------------------------------------------ where it comes from


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json", "a.csv", "a.tsv"])
def test_an_empty_file(run: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    done = run("-i", tmp_path / name)
    expected = (0, "", f"Warning: no prompts in {tmp_path / name}\n")
    assert (done.exit_code, done.stdout, done.stderr) == expected


def test_a_folder_and_a_file_that_is_not_there(run: Run, tmp_path: Path) -> None:
    for place, words in ((tmp_path, "is a directory"), (tmp_path / "none", "does not exist")):
        done = run("-i", place)
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n")
    (tmp_path / "a.txt").chmod(0)
    done = run("-i", tmp_path / "a.txt")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "is not readable" in done.stderr


@pytest.mark.parametrize(
    ("data", "texts"), [(TABLE, ["good", "bad"]), (b"one\ntwo", ["one", "two"])]
)
def test_a_named_pipe(run: Run, tmp_path: Path, data: bytes, texts: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(data,))
    writer.start()
    done = run("-i", tmp_path / "pipe")
    writer.join()
    assert [line.split("\t")[1] for line in done.stdout.splitlines()[1:]] == texts


def test_a_closed_stdin(infer_cli: InferCli, fake_model: Path) -> None:
    script = "import os; os.close(0); from core_cli import main; main()"
    with infer_cli.start("classify", "-m", fake_model, script=script) as process:
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, b"Warning: no prompts in stdin\n")


def test_a_stdin_that_was_begun_goes_on_where_it_is(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes(b"first\nsecond\n")
    with open(tmp_path / "a.txt", "rb", buffering=0) as stream:
        stream.read(len(b"first\n"))
        with infer_cli.start("classify", "-m", fake_model, stdin=stream) as process:
            out, _ = process.communicate(timeout=60)
    assert out.splitlines()[1:] == [b"1\tsecond\tsecond\t"]


def test_the_help_imports_no_reader(infer_cli: InferCli) -> None:
    script = "import sys, core_cli.app; core_cli.app.build(); print(*sys.modules)"
    with infer_cli.start(script=script) as process:
        out, _ = process.communicate(timeout=60)
    readers = re.findall(r"core_cli\.reading\.(\w+)", out.decode())
    assert readers == []
    assert {"msgspec", "pyarrow"}.isdisjoint(out.decode().split())


def test_a_first_line_that_is_too_long_and_has_a_mark(run: Run) -> None:
    done = run(stdin=b"\xef\xbb\xbf" + b"x" * 50_000_000 + b"\ntwo\n")
    assert done.exit_code == 5
    assert [line.split("\t")[0] for line in done.stdout.splitlines()[1:]] == ["1", "2"]
    assert "line 1 of stdin is longer than 16777216 bytes" in done.stderr


# ------------------------------------------------------------------ slow writers


@pytest.mark.parametrize(
    ("lines", "flags"),
    [
        ([b"one a\n", b"two b\n", b"three a\n"], ()),
        ([b'{"text": "one a"}\n', b'{"text": "two b"}\n', b'{"text": "three a"}\n'], ()),
        ([b"text,id\none a,1\n", b"two b,2\n", b"three a,3\n"], ("--format", "csv")),
    ],
    ids=["text", "jsonl", "csv"],
)
def test_a_slow_writer_is_answered_line_by_line(
    infer_cli: InferCli, fake_model: Path, lines: list[bytes], flags: Sequence[str]
) -> None:
    question = ("--labels", "a,b", "--json", "-i", "-", *flags)
    with infer_cli.start("classify", "-m", fake_model, *question) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found = []
        for line in lines:
            process.stdin.write(line)
            process.stdin.flush()
            found.append(json.loads(process.stdout.readline())["label"])  # before more is written
        process.stdin.close()
        assert process.stdout.read() == b""
        assert process.wait(timeout=60) == 0
    assert found == ["a", "b", "a"]


def test_a_fast_writer_is_answered_in_blocks(infer_cli: InferCli, fake_model: Path) -> None:
    script = f"import core_fake\ntry:\n {MAIN}\nfinally: print(core_fake.BATCHES)"
    rows = "".join(f"a {n}\n" for n in range(600))
    asked = ("classify", "-m", fake_model, "--labels", "a,b", "--json", "--no-dedupe")
    done = infer_cli.finish(*asked, stdin=rows.encode(), script=script)
    assert len(done.stdout.splitlines()) == 600
    assert json.loads(done.stderr.splitlines()[-1]) == [32, 64, 128, 256, 120]
