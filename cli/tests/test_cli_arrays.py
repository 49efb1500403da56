"""JSON as an input: arrays as they come, on one line or many, and all that is wrong with them."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core_cli import reading
from core_cli.reading import array_rows, json_rows
from core_cli.reading.row import Fields, Row

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ANY = Fields(text_wanted=False)
Classified = Callable[..., tuple[int, list[dict[str, Any]]]]


class Dripping(io.RawIOBase):
    """Bytes that come few by few, as from a pipe."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size, self.read_so_far = data, size, 0

    def read(self, size: int = -1) -> bytes:
        start, self.read_so_far = self.read_so_far, self.read_so_far + self._size
        return self._data[start : self.read_so_far]


def rows_of(data: str | bytes, fields: Fields = ANY, drip: int = 2**16) -> list[Row]:
    """The rows of an array that comes in pieces of so many bytes."""
    data = data.encode() if isinstance(data, str) else data
    return list(array_rows.rows_of_array(Dripping(data, drip), fields))  # type: ignore[arg-type]


def told(row: Row) -> str:
    """A row's error."""
    return "" if row.error is None else str(row.error)


@pytest.fixture
def classified(infer_cli: InferCli, fake_model: Path) -> Classified:
    """Classify stdin; the exit code and one object per row."""

    def run(stdin: str | bytes, *flags: str) -> tuple[int, list[dict[str, Any]]]:
        result = infer_cli("classify", "-m", fake_model, "--json", *flags, stdin=stdin)
        assert "Traceback" not in result.output
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]

    return run


# ------------------------------------------------------------------ what is written comes back

TEXTS = st.text(st.sampled_from(["a", '"', "\\", "[", "]", "{", "}", ",", "\n", "é", "你", "😀"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(-1e9, 1e9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.lists(st.dictionaries(TEXTS, VALUES, max_size=3).map(lambda r: {**r, "id": 0}), max_size=6),
    st.none() | st.integers(0, 3),
    st.booleans(),
    st.sampled_from(["", "\n", "\r\n\r\n", "\ufeff"]),
    st.integers(1, 50),
)
def test_what_was_dumped_comes_back_with_its_lines(
    records: list[dict[str, Any]], indent: int | None, ascii: bool, before: str, drip: int
) -> None:
    data = before + json.dumps(records, indent=indent, ensure_ascii=ascii)
    rows = rows_of(data, drip=drip)
    assert [told(row) for row in rows] == [""] * len(records)
    assert [row.fields for row in rows] == records
    # Each begins behind all that the ones before it take, and the line of the bracket.
    heights = [json.dumps(r, indent=indent, ensure_ascii=ascii).count("\n") + 1 for r in records]
    line, starts = before.count("\n") + 1 + (indent is not None), []
    for height in heights:
        starts.append(line)
        line += height if indent is not None else 0
    assert [row.line for row in rows] == starts


@given(
    st.lists(st.dictionaries(TEXTS, VALUES, max_size=3), max_size=4), st.none() | st.integers(0, 2)
)
def test_objects_behind_one_another_are_read_alike(
    records: list[dict[str, Any]], indent: int | None
) -> None:
    data = "\n".join(json.dumps(record, indent=indent) for record in records)
    assert [row.fields for row in rows_of(data, drip=7)] == records


PIECES = [
    b"[",
    b"]",
    b"{",
    b"}",
    b'"',
    b"\\",
    b":",
    b",",
    b"\n",
    b" ",
    b"1",
    b"-",
    b"e",
    b"tru",
    b"true",
]
MORE = [b"NaN", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\\ud800", b'"text"', b'{"text": "a"}', b"\x00"]


@given(
    st.lists(st.sampled_from(PIECES + MORE) | st.binary(max_size=2), max_size=30), st.integers(1, 9)
)
@example([b'{"a":"\\ud800"}'], 9)
@example([b'[{"a": "\xff"}]'], 1)
@example([b'{"a":"\\'], 3)
def test_any_bytes_are_rows(pieces: list[bytes], drip: int) -> None:
    for begin in (b"", b"[", b'[{"text": "a"},\n'):
        data = begin + b"".join(pieces)
        rows = rows_of(data, drip=drip)
        for row in rows:
            # No lone surrogate, in whatever a row holds.
            json.dumps([row.text, dict(row.fields), told(row)], ensure_ascii=False).encode()
            assert 1 <= row.line <= data.count(b"\n") + 1
        assert len(rows) <= len(data) + 1
        if begin.endswith(b"\n"):
            assert rows[0].text == "a"


@given(st.lists(st.sampled_from(PIECES + MORE), max_size=20), st.integers(1, 9))
@example([b"1", b"e", b"1"], 1)
def test_the_pieces_that_it_comes_in_do_not_matter(pieces: list[bytes], drip: int) -> None:
    data = b"[" + b"".join(pieces)

    def seen(rows: list[Row]) -> list[tuple[int, object, str]]:
        return [(row.line, dict(row.fields), told(row)[:12]) for row in rows]

    assert seen(rows_of(data, drip=drip)) == seen(rows_of(data))


def test_a_backslash_at_the_end_of_a_piece() -> None:
    broken = '{x: "%s\\"}", "y": "\\\\"}' % ("z" * 40)
    for drip in range(1, 9):
        rows = rows_of(f'[{broken}, {{"text": "b"}}]', drip=drip)
        assert [row.text[:3] for row in rows] == ["{x:", "b"]


# ------------------------------------------------------------------ broken elements


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        ('{"text": ["b"', "Its brackets are never closed: nothing after it is read."),
        ('{"text": "b"', "line 3 is not valid JSON: Expecting property name enclosed in double"),
        ('{"text": tru}', "line 3 is not valid JSON: Expecting value."),
        ('{"text" "b"}', "line 3 is not valid JSON: Expecting ':' delimiter."),
        (
            '{"text": "b",\n\n "c" 1}',
            "Expecting ':' delimiter on line 5. It is assumed to end on l",
        ),
        ("{'text': 'b'}", "line 3 is not valid JSON: Expecting property name"),
        ('{"text": NaN}', "line 3 is not valid JSON: NaN is not valid JSON; use null."),
        ('{"text": "b", "x": -Infinity}', "-Infinity is not valid JSON; use null."),
        ('{"text": "\\ud800"}', "it contains half of a surrogate pair"),
        ('{"text": "\t"}', "line 3 is not valid JSON: Invalid control character at character"),
        ('{"x": 1e999}', "line 3 is not valid JSON: Number out of range."),
        ('{"x": 1%s}' % ("0" * 5000), "line 3 is not valid JSON: Integer value out of range."),
        ('{"x": ' + "[" * 300 + "]" * 300 + "}", "it is nested more than 200 deep."),
        ('{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", "it is nested more than 200 deep."),
        ("[" * 100_000 + "]" * 100_000, "it is nested more than 200 deep."),
        ("oops", "line 3 is not valid JSON: Expecting value."),
        ("17", "line 3 is not a JSON object."),
        ('"text"', "line 3 is not a JSON object."),
        ("[1, 2]", "line 3 is not a JSON object."),
        ('{"prompt": 3}', "line 3: 'prompt' is not a string but a number."),
        ('{"x": 1}', "line 3 has no 'prompt' or 'text'. Available fields: 'x'"),
    ],
    ids=lambda value: f"{value[:30]} {len(value)}",
)
def test_a_broken_element_is_only_its_own_error(
    classified: Classified, element: str, problem: str
) -> None:
    data = f'[\n{{"text": "before"}},\n{element},\n{{"text": "after"}}\n]'
    code, rows = classified(data, "--format", "json")
    assert code == 5
    assert problem in rows[1]["error"]["message"]
    kept = [row["text"] for row in rows if row["error"] is None]
    assert kept == (["before"] if "nothing after" in problem else ["before", "after"])
    assert rows[-1]["line"] == (3 if "nothing after" in problem else 4 + element.count("\n"))


def test_a_line_has_the_same_words_for_it() -> None:
    for text in ('{"x": NaN}', '{"x": "\\ud800"}', '{"x": 1 2}', "[" * 300 + "]" * 300):
        [of_line] = json_rows.rows_of_lines(io.BytesIO(text.encode()), "it", ANY)
        [of_array] = rows_of(f"[{text}]")
        assert of_line.error is not None
        assert told(of_line).split(": ")[0] == told(of_array).split(": ")[0]


def test_bytes_that_are_not_utf8_are_one_element_s_error(classified: Classified) -> None:
    code, rows = classified(b'[{"text": "a"},\n{"text": "\xff"},\n{"text": "\xc3\xa9"}]')
    assert (code, [row.get("text") for row in rows]) == (5, ["a", None, "é"])
    assert rows[1]["error"]["message"] == (
        "line 2 is not valid UTF-8. If Excel or another program of Windows wrote the file, pass "
        "--encoding cp1252."
    )


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ('[{"text": "a"},\n', "line 2: the array that begins on line 1 is not closed."),
        ("[", "line 1: the array that begins on line 1 is not closed."),
        ('[{"text": "a"},\n{"text": "b', "line 2 is not valid JSON: Unterminated string"),
        ('[{"text": "a"}]]', "line 1 is not valid JSON: Expecting value."),
    ],
)
def test_an_array_that_was_cut_off_is_no_whole_one(data: str, problem: str) -> None:
    rows = rows_of(data)
    assert problem in told(rows[-1])
    assert [row.text for row in rows[:-1]] == ["a"] * (len(rows) - 1)


def test_a_big_number_is_kept_as_it_is(classified: Classified) -> None:
    code, rows = classified('[{"text": "a", "id": 1%s}]' % ("0" * 400))
    assert (code, rows[0]["id"]) == (0, 10**400)


def test_what_is_nested_deeply_and_read_is_also_written(classified: Classified) -> None:
    deep = "[" * 199 + "]" * 199
    code, rows = classified(f'[{{"text": "a", "x": {deep}}}]')
    assert (code, json.dumps(rows[0]["x"])) == (0, deep)


# ------------------------------------------------------------------ what is long


def test_an_element_of_50_megabytes(classified: Classified) -> None:
    long = '{"text": "%s", "more": [{"x": "]}\\\\"}]}' % ("x" * 50_000_000)
    code, rows = classified(f'[{{"text": "a"}},\n{long},\n{{"text": "b"}}]')
    assert (code, [row.get("text", "")[:9] for row in rows]) == (5, ["a", "", "b"])
    assert [row["line"] for row in rows] == [1, 2, 3]
    assert (
        "line 2 is not valid JSON: it is longer than 16777216 bytes" in rows[1]["error"]["message"]
    )


def test_no_more_is_held_than_an_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 2**16)

    class Long(io.RawIOBase):
        """30 MB of elements, and 30 MB of one that is not closed."""

        left = 60

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            elements = b'{"text": "%b"},' % (b"x" * 1000) * 1000
            return (
                b""
                if self.left < 0
                else elements
                if self.left >= 30
                else b'{"x": [' + b"1," * 500_000
            )

    found: Iterator[Row] = array_rows.rows_of_array(Long(), ANY)  # type: ignore[arg-type]
    tracemalloc.start()
    try:
        good = sum(row.error is None for row in found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert good == 30_000
    assert peak < 10_000_000


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_an_input_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_SKIPPED_BYTES", 2**24)
    with open("/dev/zero", "rb") as zeros:
        [row] = array_rows.rows_of_array(zeros, ANY)
    assert "It is never closed: nothing after it is read." in told(row)


def test_a_block_ends_early_where_its_records_are_long() -> None:
    from core_cli.rows import asker

    rows = [Row(n, "a", size=6 * 2**20) for n in range(6)]
    assert [len(block) for block in asker.blocks(rows)] == [3, 3]


# ------------------------------------------------------------------ as they come


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("name", ["-", "a.json", "a.jsonl", "a.txt"])
def test_an_array_is_known_under_any_name(
    classified: Classified, tmp_path: Path, name: str, indent: int | None
) -> None:
    data = json.dumps([{"id": 1, "text": "a"}, {"id": 2, "text": "b"}], indent=indent)
    if name != "-":
        (tmp_path / name).write_text(data)
        name = str(tmp_path / name)
    code, rows = classified(data, "-i", name)
    assert (code, [row["text"] for row in rows]) == (0, ["a", "b"])


@pytest.mark.parametrize("name", ["-", "a.json"])
def test_a_single_object_on_many_lines(classified: Classified, tmp_path: Path, name: str) -> None:
    data = json.dumps({"text": "a", "more": {"x": [1]}}, indent=2)
    if name != "-":
        (tmp_path / name).write_text(data)
        name = str(tmp_path / name)
    code, rows = classified(data, "-i", name)
    assert (code, [row["text"] for row in rows]) == (0, ["a"])


@pytest.mark.parametrize("data", ["[]", " [\n]\n", "\ufeff[ ]", ""])
def test_an_array_of_nothing_is_warned_of(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, data: str
) -> None:
    (tmp_path / "a.json").write_text(data)
    for flags in ([], ["-i", str(tmp_path / "a.json")]):
        done = infer_cli("classify", "-m", fake_model, *flags, stdin=data)
        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr.startswith("Warning: no prompts in ")
