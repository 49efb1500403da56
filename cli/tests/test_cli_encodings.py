"""Inputs as Excel and Windows write them: encodings, ``sep=``, workbooks; and output suffixes."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ROWS = "id;text\r\n1;Der Stürmer schoss zwei Tore\r\n2;Les taux d'intérêt “hauts”\r\n3;plain\r\n"
TEXTS = ["Der Stürmer schoss zwei Tore", "Les taux d'intérêt “hauts”", "plain"]


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize(
    "encoding", ["cp1252", "utf-16", "UTF-16LE", "utf-32", "utf8", "mac-roman"]
)
@pytest.mark.parametrize("piped", [False, True])
def test_an_encoding(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, encoding: str, piped: bool
) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(ROWS.encode(encoding))
    flags = ("-m", fake_model, "--encoding", encoding, "--format", "csv", "--json")
    if piped:
        done = infer_cli("classify", *flags, stdin=file.read_bytes())
    else:
        done = infer_cli("classify", *flags, "-i", file)
    assert (done.exit_code, [row["text"] for row in rows_of(done.stdout)]) == (0, TEXTS)


def test_a_character_across_chunks(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    text = "ü" * 70_001
    file.write_bytes(f"{text}\nend\n".encode("utf-16-be"))
    flags = ("--encoding", "utf-16-be", "--json", "--format", "text", "-i", file)
    rows = rows_of(infer_cli("classify", "-m", fake_model, *flags).stdout)
    assert [row["text"] for row in rows] == [text, "end"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.txt", "rows.jsonl"])
def test_other_bytes_advise_the_encoding(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    texts = {
        "rows.csv": ROWS,
        "rows.txt": "\n".join(TEXTS[:1]),
        "rows.jsonl": '{"text": "für"}\n',
    }
    file.write_bytes(texts[name].encode("cp1252"))
    done = infer_cli("classify", "-m", fake_model, "-i", file, "--json")
    assert done.exit_code == 5
    assert "pass --encoding cp1252" in rows_of(done.stdout)[0]["error"]["message"]


def test_utf_16_advises_its_encoding(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(ROWS.encode("utf-16"))
    done = infer_cli("classify", "-m", fake_model, "-i", file)
    assert done.exit_code == 2
    assert "Pass --encoding utf-16" in done.stderr


@pytest.mark.parametrize(
    ("encoding", "data", "message"),
    [
        ("windows", b"text\na\n", "Unknown encoding 'windows'"),
        ("base64", b"text\na\n", "Unknown encoding 'base64'"),
        ("utf-16-le", b"t\x00e\x00x", "The input is not valid utf-16-le: truncated data."),
    ],
)
def test_a_wrong_encoding_is_refused(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, encoding: str, data: bytes, message: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(data)
    done = infer_cli("classify", "-m", fake_model, "-i", file, "--encoding", encoding)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(("line", "separator"), [("sep=;", ";"), ('"sep=,"', ","), ("sep=#", "#")])
@pytest.mark.parametrize("name", ["rows.csv", "-"])
def test_the_line_of_the_separator_is_not_the_header(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, line: str, separator: str, name: str
) -> None:
    data = f"\ufeff{line}\r\n{ROWS.replace(';', separator)}".encode()
    (tmp_path / "rows.csv").write_bytes(data)
    file = name if name == "-" else tmp_path / name
    done = infer_cli("classify", "-m", fake_model, "-i", file, "--json", stdin=data)
    assert [row["text"] for row in rows_of(done.stdout)] == TEXTS


@pytest.fixture
def workbook(tmp_path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    day = datetime.datetime(2026, 1, 31)
    for cells in (
        [],
        ["id", "text", "label", "day", None],
        [1, "first", "a", day],
        [2.5, "second\nline", "b", None],
        [],
        [3, None, "a", datetime.datetime(2026, 1, 31, 12, 30)],
        [4, "fourth"],
    ):
        book.active.append(cells)
    book.create_sheet("other").append(["not", "read"])
    file = tmp_path / "rows.xlsx"
    book.save(file)
    return file


def test_a_workbook_is_read_as_a_table(
    infer_cli: InferCli, fake_model: Path, workbook: Path
) -> None:
    flags = ("-i", workbook, "--gold", "label", "--json")
    done = infer_cli("classify", "-m", fake_model, *flags)
    rows = rows_of(done.stdout)
    assert "labels in 'label': 'a', 'b'" in done.stderr
    assert [row["id"] for row in rows] == ["1", "2.5", "3", "4"]
    assert [row["text"] for row in rows] == ["first", "second\nline", "", "fourth"]
    assert [row["day"] for row in rows] == ["2026-01-31", "", "2026-01-31T12:30:00", ""]
    assert rows[2]["error"]["message"].startswith("The text of row 6 is blank")
    assert done.exit_code == 5


def test_a_workbook_of_another_name(infer_cli: InferCli, fake_model: Path, workbook: Path) -> None:
    file = workbook.rename(workbook.with_suffix(".data"))
    refused = infer_cli("classify", "-m", fake_model, "-i", file)
    assert (refused.exit_code, "pass --format xlsx" in refused.stderr) == (2, True)
    done = infer_cli("classify", "-m", fake_model, "-i", file, "--format", "xlsx", "--limit", "1")
    assert done.exit_code == 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"PK\x03\x04 cut", "is not a complete .xlsx workbook"),
        (b"\xd0\xcf\x11\xe0old", "old Excel file. Save the table as CSV or .xlsx"),
    ],
)
def test_a_broken_workbook_is_refused(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, data: bytes, message: str
) -> None:
    pytest.importorskip("openpyxl")
    file = tmp_path / "rows.xlsx"
    file.write_bytes(data)
    done = infer_cli("classify", "-m", fake_model, "-i", file)
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_workbook_has_its_own_encoding(
    infer_cli: InferCli, fake_model: Path, workbook: Path
) -> None:
    flags = ("-i", workbook, "--format", "xlsx", "--encoding", "cp1252")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert (done.exit_code, "--encoding is for text" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["out.xlsx", "out.csv.gz", "out.html", "out.db", "out.v2"])
def test_a_suffix_of_another_format_is_refused(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "in.txt").write_text("one\n")
    (fake_model / "error.txt").write_text("it was loaded")
    output = tmp_path / name
    flags = ("-m", fake_model, "-i", tmp_path / "in.txt", "-o", output)
    refused = infer_cli("classify", *flags)
    assert refused.exit_code == 2
    assert f"{output.suffix} is not an output format" in refused.stderr
    (fake_model / "error.txt").unlink()
    assert infer_cli("classify", *flags, "--to", "jsonl").exit_code == 0


@pytest.mark.parametrize("data", ["", "id,text\n"])
def test_an_empty_table_loads_no_model(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, data: str
) -> None:
    (fake_model / "error.txt").write_text("it was loaded")
    file = tmp_path / "rows.csv"
    file.write_text(data)
    done = infer_cli("classify", "-m", fake_model, "-i", file)
    assert (done.exit_code, done.stderr) == (0, f"Warning: no prompts in {file}\n")
