"""Tables as inputs: CSV, TSV and Parquet as they are in the wild, and all that is wrong there."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core_cli import reading
from core_cli.reading import parquet_rows, table_rows
from core_cli.reading.row import Fields, Row
from core_cli.reading.table_rows import TableLines

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ANY = Fields(text_wanted=False)
Classified = Callable[..., tuple[int, list[dict[str, Any]]]]


def rows_of(data: bytes, form: str = "csv", fields: Fields = ANY) -> list[Row]:
    """The rows of a table without a name."""
    return list(table_rows.rows_of_table(io.BytesIO(data), "it", form, fields))


def told(row: Row) -> str:
    """A row's error."""
    return "" if row.error is None else str(row.error)


@pytest.fixture
def classified(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> Classified:
    """Classify the rows of a file with these bytes; the exit code and one object per row."""

    def run(data: bytes, *flags: str, name: str = "a.csv") -> tuple[int, list[dict[str, Any]]]:
        file = tmp_path / name
        file.write_bytes(data)
        form = () if "-o" in flags else ("--json",)
        result = infer_cli("classify", "-m", fake_model, *form, "-i", file, *flags)
        assert "Traceback" not in result.output
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]

    return run


def refused(data: bytes, form: str = "csv", fields: Fields = ANY) -> str:
    """Why a table is refused as a whole."""
    with pytest.raises(click.UsageError) as error:
        rows_of(data, form, fields)
    return error.value.message


# ------------------------------------------------------------------ what is written comes back

CELLS = st.text(
    st.sampled_from(["a", '"', ",", ";", "\t", "|", "\n", "\r", "é", "你", " ", "\x00"])
)
TABLES = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=8)
)


@given(
    TABLES,
    st.sampled_from(",;\t|"),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.booleans(),
)
def test_what_a_writer_wrote_comes_back_with_its_lines(
    records: list[list[str]], separator: str, end: str, quoting: Any, mark: bool
) -> None:
    written = io.StringIO(newline="")
    if end == "\n":
        quoting = csv.QUOTE_ALL  # which before Python 3.13 a carriage return needs
    writer = csv.writer(written, delimiter=separator, lineterminator=end, quoting=quoting)
    width = len(records[0]) if records else 2
    columns = [f"column {n}" for n in range(width)]
    writer.writerow(columns)
    starts = []
    for record in records:
        starts.append(written.getvalue().count("\n") + 1)
        writer.writerow(record)
    data = b"\xef\xbb\xbf" * mark + written.getvalue().encode()

    rows = rows_of(data, "tsv" if separator == "\t" else "csv")
    assert [list(row.fields.values()) for row in rows] == records
    assert all(list(row.fields) == columns for row in rows)
    assert [row.line for row in rows] == starts


PIECES = [
    b'"',
    b",",
    b"\t",
    b"\n",
    b"\r",
    b"\r\n",
    b"\x00",
    b"\xff",
    b"\xc3",
    b"a",
    b"text",
    b"\xef\xbb\xbf",
]


@given(
    st.lists(st.sampled_from(PIECES) | st.binary(max_size=3), max_size=40),
    st.sampled_from(["csv", "tsv"]),
)
@example([b"\n"], "csv")
@example([b'"'], "csv")
def test_any_bytes_are_rows_or_refused(pieces: list[bytes], form: str) -> None:
    for begin in (b"", b"text,b\n", b"text\tb\n"):
        try:
            rows = rows_of(begin + b"".join(pieces), form)
        except click.UsageError:
            continue
        for row in rows:
            assert row.error is not None or row.fields
            # No lone surrogate, in whatever a row holds.
            json.dumps([row.text, dict(row.fields), told(row)], ensure_ascii=False).encode()
        assert [row.line for row in rows] == sorted({row.line for row in rows})


@given(st.lists(st.sampled_from([b'"', b",", b"\n", b"a"]), max_size=40))
def test_a_broken_record_costs_its_first_line_alone(pieces: list[bytes]) -> None:
    data = b"text,b\n" + b"".join(pieces)
    text = data.split(b"\n")
    rows = rows_of(data)
    for row, line in zip(rows, [*(row.line for row in rows[1:]), None], strict=False):
        if "is not valid" in told(row):
            behind = range(row.line + 1, len(text) + 1)
            assert line == next((number for number in behind if text[number - 1]), None)


# ------------------------------------------------------------------ broken records


def test_a_quote_that_is_never_closed_is_its_own_row_s_error(classified: Classified) -> None:
    code, rows = classified(b'id,text\n1,fine\n2,"open\n3,more\n4,"good, too"\n5,last\n')
    assert code == 5
    assert [row["line"] for row in rows] == [2, 3, 4, 5, 6]
    assert [row["error"] is None for row in rows] == [True, False, True, True, True]
    assert rows[1]["error"]["message"].startswith(
        "line 3 is not valid CSV: a quote within a quoted"
    )
    assert [row.get("text") for row in rows] == ["fine", None, "more", "good, too", "last"]


def test_a_quote_that_nothing_closes_takes_nothing_with_it() -> None:
    rows = rows_of(b'text,b\n"open,1\nmore,2\nlast,3\n')
    assert "line 2 is not valid CSV: a double quote opens a cell and is not closed" in told(rows[0])
    assert [row.fields["text"] for row in rows[1:]] == ["more", "last"]


def test_an_open_quote_before_much_more_is_held_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1000)
    rows = rows_of(b'text,b\n"open,1\n' + b"good,2\n" * 1000)
    assert "is not closed" in told(rows[0])
    assert [row.line for row in rows] == list(range(2, 1003))
    assert {row.text for row in rows[1:]} == {"good"}


def test_records_that_never_end_are_read_a_few_times_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 1000)
    stream = io.BytesIO(b"text,b,c\n" + b'a",,"c\n' * 20_000)
    read = 0
    source = TableLines.__next__

    def counted(self: TableLines) -> str:
        nonlocal read
        read += 1
        return source(self)

    monkeypatch.setattr(TableLines, "__next__", counted)
    rows = list(table_rows.rows_of_table(stream, "it", "csv", ANY))
    assert all("not valid CSV" in told(row) for row in rows)
    assert read < 5 * 20_000


@pytest.mark.parametrize(
    ("record", "problem"),
    [
        (b"only", "line 3 has 1 cells; the header has 2. Put cells with the separator"),
        (b"a,b,c", "line 3 has 3 cells; the header has 2."),
        (b'"a\nb"', "line 3 (to line 4) has 1 cells"),
        (b'"a"b,c', "line 3 is not valid CSV: a quote within a quoted cell must be doubled"),
        (b"a\rb,c", "a cell without double quotes contains a carriage return"),
        (b"\xff,c", "line 3 is not valid UTF-8."),
        (b'"x\n\xff",c', "line 3 is not valid UTF-8."),
    ],
)
def test_a_broken_record_is_only_its_own_error(
    classified: Classified, record: bytes, problem: str
) -> None:
    code, rows = classified(b"text,b\nbefore,1\n" + record + b"\nafter,2\n")
    assert code == 5
    assert problem in rows[1]["error"]["message"]
    assert [row.get("text") for row in rows] == ["before", None, "after"]


def test_a_cell_of_50_megabytes(classified: Classified) -> None:
    code, rows = classified(b"text,b\none,1\n" + b"x" * 50_000_000 + b",2\ntwo,3\n")
    assert (code, [row["line"] for row in rows]) == (5, [2, 3, 4])
    assert (
        "line 3 is not valid CSV: it is longer than 16777216 bytes" in rows[1]["error"]["message"]
    )
    assert rows[2]["text"] == "two"


def test_a_quoted_cell_of_50_megabytes_in_many_lines() -> None:
    line = b"x" * 999_999 + b"\n"
    rows = rows_of(b'text,b\n1,"' + line * 50 + b'",2\ntwo,3\n')
    assert "is not closed" in told(rows[0])
    assert rows[-1].text == "two"


def test_cells_keep_what_they_hold(classified: Classified) -> None:
    data = 'id;text\r\n1;"a ""b"",\r\n c; d"\r\n\r\n2;é 你\r\n3;\r\n'.encode()
    code, rows = classified(b"\xef\xbb\xbf" + data)
    assert [(row["line"], row["text"]) for row in rows] == [
        (2, 'a "b",\r\n c; d'),
        (5, "é 你"),
        (6, ""),
    ]
    assert (code, rows[2]["error"]["type"]) == (5, "EmptyPromptError")


# ------------------------------------------------------------------ headers


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\xef\xbb\xbf", b"text,b\n", b"text", b"\r\n"])
def test_a_table_without_rows_is_warned_of(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, data: bytes
) -> None:
    for name in ("a.csv", "a.tsv"):
        (tmp_path / name).write_bytes(data.replace(b",", b"\t") if name == "a.tsv" else data)
        done = infer_cli("classify", "-m", fake_model, "-i", tmp_path / name)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == f"Warning: no prompts in {tmp_path / name}\n"


@pytest.mark.parametrize(
    ("data", "fields", "problem"),
    [
        (b"text,b,text\n1,2,3\n", ANY, "it has two columns 'text'. Rename one in the header."),
        (b"text, text\n1,2\n", ANY, "it has two columns 'text'"),
        (b'text,"b\n1,2\n', ANY, "the header cannot be read: a double quote opens a cell"),
        (b"te\xffxt,b\n1,2\n", ANY, "it: the header is not valid UTF-8."),
        (b"a\rb,c\n1,2\n", ANY, "the header cannot be read: a cell without double quotes contains"),
        (
            b"a,b\n1,2\n",
            Fields(),
            "Available fields: 'a', 'b'. Select the text field with --text-field",
        ),
        (b"\n\nmessage,b\n", Fields("mesage"), "line 3 has no 'mesage'. Available fields:"),
        (b"message,b\n", Fields("mesage"), "Did you mean --text-field message?"),
        (b"text,key\n1,2\n", Fields(identity="kee"), "Did you mean --id-field key?"),
        (b"text,Topic\n1,2\n", Fields(others=("topic",)), "Did you mean {Topic}?"),
    ],
)
def test_a_header_of_no_use_is_refused(data: bytes, fields: Fields, problem: str) -> None:
    assert problem in refused(data, fields=fields)


def test_a_header_that_is_too_long_is_refused() -> None:
    assert "the header cannot be read: it is longer than" in refused(b"x" * 20_000_000)


def test_a_wrong_field_is_refused_before_the_load(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    (fake_model / "error.txt").write_text("it was loaded")
    (tmp_path / "a.csv").write_text("Review Text,id\ngood,1\n")
    flags = ("classify", "-m", fake_model, "-i", tmp_path / "a.csv")
    for more, words in (
        (["--text-field", "Review text"], "Did you mean --text-field 'Review Text'?"),
        (
            ["--template", "{Review}: {id}"],
            "has no 'Review'. Available fields: 'Review Text', 'id'",
        ),
        (["--text-field", "Review Text", "--id-field", "nr"], "has no 'nr'"),
        ([], "Select the text field with --text-field"),
    ):
        done = infer_cli(*flags, *more)
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in " ".join(done.stderr.split())


def test_names_of_columns_lose_the_spaces_around_them(classified: Classified) -> None:
    code, rows = classified(b"id , Review Text,\n1,good,x\n", "--template", "{Review Text}!")
    assert code == 0
    assert {"id": "1", "Review Text": "good", "column 3": "x"}.items() <= rows[0].items()
    assert rows[0]["token"]["text"] == "good!"


def test_columns_with_our_names_are_kept_under_others(classified: Classified) -> None:
    data = b"line,text,label,error,input_label\n7,t,gold,none,silver\n"
    code, rows = classified(data, "--labels", "a,b")
    assert code == 0
    assert (rows[0]["line"], rows[0]["input_line"], rows[0]["error"]) == (2, "7", None)
    assert rows[0]["input_error"] == "none"
    # One that is called so already keeps its name.
    assert (rows[0]["input_label"], rows[0]["input_input_label"]) == ("silver", "gold")


def test_terminal_escapes_in_cells(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "a.csv", tmp_path / "out.csv"
    source.write_bytes(b"id,text\n\x1b[31mred,\x1b]0;title\x07 x\xe2\x80\xae\n")
    shown = infer_cli("classify", "-m", fake_model, "-i", source)
    assert shown.stdout.splitlines()[1] == "2\t\\x1b]0;title\\x07 x\\u202e\tx\\u202e\t"
    infer_cli("classify", "-m", fake_model, "-i", source, "-o", out)
    assert source.read_bytes().splitlines()[1] in out.read_bytes()


def test_a_cell_with_a_carriage_return_comes_back(classified: Classified, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    texts = ["a\rb", "c\r\nd", "e\r"]
    data = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    classified(data.encode(), "-o", str(out), name="a.jsonl")
    assert [row.fields["text"] for row in rows_of(out.read_bytes())] == texts
    assert out.read_bytes().startswith(b"line,text,token,error\n1,")


# ------------------------------------------------------------------ ids


@pytest.mark.parametrize(
    ("data", "name", "warned"),
    [
        (
            b"id,text\na,1\nb,2\na,3\nb,4\n",
            "a.csv",
            "id 'a' is not unique: it is on line 2 and on line 4",
        ),
        (
            b'{"id": [1], "text": "x"}\n{"id": [1], "text": "y"}\n',
            "a.jsonl",
            "id [1] is not unique",
        ),
        (b'[{"id": 1, "text": "x"}, {"id": 1, "text": "y"}]', "a.json", "on line 1 and on line 1"),
        (b'{"id": 1, "text": "x"}\n{"id": "1", "text": "y"}\n', "a.jsonl", ""),
        (b"id,text\n,1\n,2\n", "a.csv", ""),
        (b'{"id": null, "text": "x"}\n{"id": null, "text": "y"}\n', "a.jsonl", ""),
    ],
)
def test_an_id_that_stands_twice_is_warned_of_once(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, data: bytes, name: str, warned: str
) -> None:
    (tmp_path / name).write_bytes(data)
    done = infer_cli("classify", "-m", fake_model, "-i", tmp_path / name)
    assert done.exit_code == 0
    assert done.stderr.count("Warning") == bool(warned)
    assert warned in done.stderr


# ------------------------------------------------------------------ Parquet


def parquet(columns: dict[str, Sequence[Any]] | pyarrow.Table) -> bytes:
    """A Parquet file."""
    table = columns if isinstance(columns, pyarrow.Table) else pyarrow.table(columns)
    stream = io.BytesIO()
    pyarrow.parquet.write_table(table, stream)
    return stream.getvalue()


def rows_of_parquet(data: bytes, fields: Fields = ANY) -> list[Row]:
    return list(parquet_rows.rows_of_parquet(io.BytesIO(data), "it", fields))


def test_rows_of_parquet_keep_their_values(classified: Classified) -> None:
    data = parquet(
        {
            "id": [2**60, None],
            "text": ["é\n你", "b"],
            "when": [date(2024, 2, 29), None],
            "parts": [[1, 2], None],
            "bytes": [b"\xff", b""],
            "share": [float("nan"), 0.5],
        }
    )
    code, rows = classified(data, name="a.parquet")
    assert code == 0
    assert [(row["line"], row["id"], row["text"]) for row in rows] == [
        (1, 2**60, "é\n你"),
        (2, None, "b"),
    ]
    assert (rows[0]["when"], rows[0]["parts"]) == ("2024-02-29", [1, 2])
    assert (rows[0]["share"], rows[1]["share"]) == (None, 0.5)


def test_a_text_that_is_missing_or_none_is_its_row_s_error(classified: Classified) -> None:
    code, rows = classified(parquet({"text": ["a", None]}), name="a.parquet")
    assert (code, rows[0]["error"]) == (5, None)
    assert "row 2: 'text' is not a string" in rows[1]["error"]["message"]


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.txt", "a"])
def test_parquet_is_known_by_its_bytes(classified: Classified, name: str) -> None:
    code, rows = classified(parquet({"text": ["a", "b"]}), name=name)
    assert (code, [row["text"] for row in rows]) == (0, ["a", "b"])


def test_parquet_that_is_broken(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    whole, file = parquet({"text": ["a"] * 1000}), tmp_path / "a.parquet"
    for data in (b"", b"PAR1", whole[:-9], b"PAR1" + b"\xff" * 300 + b"PAR1", b"id,text\n1,2\n"):
        file.write_bytes(data)
        done = infer_cli("classify", "-m", fake_model, "-i", file)
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{file} is not a complete Parquet file" in done.stderr


def test_columns_of_parquet_are_looked_at_first() -> None:
    with pytest.raises(click.UsageError, match="Did you mean --text-field message"):
        rows_of_parquet(parquet({"message": ["a"]}), Fields("mesage"))
    with pytest.raises(click.UsageError, match="has two columns 'a'"):
        rows_of_parquet(parquet(pyarrow.table([["x"], ["y"]], names=["a", "a"])))


def test_bad_rows_of_parquet_are_their_own_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 10_000)
    column = pyarrow.array([b"a", b"\xff", b"x" * 20_000, b"b"])
    text = pyarrow.Array.from_buffers(pyarrow.string(), 4, column.buffers())
    rows = rows_of_parquet(parquet(pyarrow.table([text], names=["text"])))
    assert [row.text for row in rows] == ["a", "", "", "b"]
    assert [told(row) for row in rows] == [
        "",
        "row 2 cannot be read: it is not valid UTF-8.",
        "row 3 cannot be read: it is longer than 10000 bytes.",
        "",
    ]


WHOLE = parquet({"text": [f"text {n}" for n in range(50)]})


@settings(max_examples=50)
@given(st.data())
def test_spoilt_bytes_of_parquet_are_rows_or_refused(data: st.DataObject) -> None:
    whole = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        rows = rows_of_parquet(bytes(whole))
    except click.UsageError:
        return
    for row in rows:
        json.dumps([row.text, told(row)], ensure_ascii=False).encode()


def test_parquet_on_a_pipe_is_refused(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli("classify", "-m", fake_model, stdin=parquet({"text": ["a"]}))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Parquet cannot be read from a pipe" in done.stderr


def test_parquet_as_stdin_that_is_a_file(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(parquet({"text": ["a"]}))
    with open(tmp_path / "a", "rb") as stream:
        process = infer_cli.start("classify", "-m", fake_model, stdin=stream)
        out, _ = process.communicate(timeout=60)
    assert out.splitlines()[1] == b"1\ta\ta\t"
