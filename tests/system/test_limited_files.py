"""Files that anybody may have written: what is read of them, and what is refused."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import TaskError
from core.system.limited_files import (
    MOST_DEPTH,
    MOST_KEY_PARTS,
    MOST_TABLES,
    MOST_VALUES,
    FileKind,
    NewerFormat,
    Refused,
    check_format,
    json_value,
    read_limited,
    shown,
    toml_table,
)

NOTE = FileKind("a note", TaskError, "Write it again.", 100)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "note"
    path.write_bytes(b"x" * 100)
    assert NOTE.read(path) == read_limited(path, 100) == b"x" * 100
    path.write_bytes(b"x" * 101)
    with pytest.raises(
        TaskError, match=r"note' is not a note: it is larger than 100 bytes\. Write"
    ):
        NOTE.read(path)


def test_only_a_regular_file_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(TaskError, match="it is a pipe or a device, not a file"):
            NOTE.read(path)
    with pytest.raises(TaskError, match="null"):
        NOTE.read("a\0b")
    with pytest.raises(IsADirectoryError):
        NOTE.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        NOTE.read(tmp_path / "none")


def test_json_and_toml_are_read_as_they_are() -> None:
    value = {"a": [1, -2.5, None, True, "é"], "b": {"c": []}}
    text = '{"a": [1, -2.5, null, true, "é"], "b": {"c": []}}'
    assert json_value(text) == json_value(b"\xef\xbb\xbf" + text.encode()) == value
    assert json_value("\ufeff[]") == []
    table = 'a = [1, -2.5, true, "é"] # a comment\n[b]\nc.d = "x.y"\n'
    assert toml_table("\ufeff" + table) == toml_table(table.encode()) == tomllib.loads(table)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is not JSON: Expecting value: line 1 column 1"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1), f"more than {MOST_DEPTH} levels deep"),
        ('{"a":' * (MOST_DEPTH + 1) + "1" + "}" * (MOST_DEPTH + 1), "levels deep"),
        ("9" * 5_000, "a number with too many digits"),
        (b"\xff", "it is not UTF-8 .byte 0"),
        ("[" + "[]," * (MOST_VALUES // 2) + "[]]", f"more than {MOST_VALUES} values"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' occurs twice"),
        ('[{"a": {"x": 1, "x": 1}}]', "the key 'x' occurs twice"),
    ],
)
def test_json_beyond_the_limits_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        json_value(text)


def test_what_is_within_the_limits_is_read() -> None:
    assert json_value("[" * MOST_DEPTH + "]" * MOST_DEPTH)
    assert json_value('{"a": 1, "a": 2}', unique=False) == {"a": 2}
    assert toml_table(".".join("a" * MOST_KEY_PARTS) + " = 1")
    assert toml_table("".join(f"[a{n}]\n" for n in range(MOST_TABLES)))


LONG = ".".join("a" * (MOST_KEY_PARTS + 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = ", r"it is not TOML: Invalid value .at end of document"),
        ("a = " + "9" * 5_000, "a number with too many digits"),
        ("a = " + "[" * 5_000, "nested too deeply"),
        ("a = " + "[" * 99 + "]" * 99, "levels deep"),
        (b"a = '\xff'", "it is not UTF-8 .byte 5"),
        ("\n" * (MOST_VALUES + 1), "values"),
        (f"{LONG} = 1", f"a key of more than {MOST_KEY_PARTS} parts"),
        ("a." * 20_000 + "b = 1", "a key of more than"),
        (f"[{LONG}]", "a key of more than"),
        (f"[[{LONG}]]", "a key of more than"),
        (f"x = {{ {LONG} = 1 }}", "a key of more than"),
        (f"x = [ 1, {{ y = 2, {LONG} = 1 }} ]", "a key of more than"),
        (LONG.replace("a", "'a.b'") + " = 1", "a key of more than"),
        (LONG.replace(".", " . ") + " = 1", "a key of more than"),
        # A quote that ends earlier, or later, than it seems to.
        (f'x = "\\"" # "\n{LONG} = 1', "a key of more than"),
        (f"x = '\\' # '\n{LONG} = 1", "a key of more than"),
        (f'x = """a"b""c\\"""""" # """\n{LONG} = 1', "a key of more than"),
        (f"x = '''a'b''c'''' # '''\n{LONG} = 1", "a key of more than"),
        (f'x = 1 # it\'s """\n{LONG} = 1', "a key of more than"),
        ("".join(f"[a{n}]\n" for n in range(MOST_TABLES + 1)), f"more than {MOST_TABLES} tables"),
        ("".join(f"a{n}.b = 1\n" for n in range(MOST_TABLES + 1)), "tables"),
    ],
)
def test_toml_beyond_the_limits_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        toml_table(text)


@pytest.mark.parametrize(
    "text",
    [
        f'template = "{LONG} = 1"',
        f"template = '{LONG} = 1'",
        f'template = """\n{LONG} = 1\n\\"""{LONG} = 1""""',
        f"template = '''\n[{LONG}]\n''''",
        f"# {LONG} = 1\na = 1",
        "prior = [" + "-0.25, " * 50_000 + "1.5e-3]",
    ],
)
def test_dots_in_texts_comments_and_numbers_are_no_keys(text: str) -> None:
    assert toml_table(text) == tomllib.loads(text)


PIECES = ('"""', "'''", '"', "'", "\\", "\n", "#", "a", ".", "=", "[", "]", "{", "}", ",", " ", "1")


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_toml_that_is_read_is_what_the_library_reads(text: str) -> None:
    try:
        found = toml_table(text)
    except Refused:
        return
    assert found == tomllib.loads(text)


def test_values_in_messages_are_short() -> None:
    assert shown("x" * 99) == f"'{'x' * 58}…"
    assert shown(16**5_000) == "a int that is too large to display"


def test_a_newer_format_is_refused_by_name() -> None:
    check_format(1, 1)
    with (
        pytest.raises(
            TaskError, match=r"^x is a note in format 2, but .* up to 1. Upgrade to read it"
        ),
        NOTE.errors("x"),
    ):
        check_format(2, 1)
    for odd in (0, -1, True, 1.0, "1", None):
        with pytest.raises(Refused, match=r"its format is .*, not a number from 1"):
            check_format(odd, 1)
    with pytest.raises(NewerFormat, match="too large to display"):
        check_format(16**5_000, 1)
