"""Where ``classify`` gets its prompts from: files, stdin, text, JSONL, and broken ones."""

from __future__ import annotations

import importlib
import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli


@pytest.fixture
def classified(infer_cli: InferCli, fake_model: Path) -> Any:
    """Classify stdin; the exit code and one object per row."""

    def run(stdin: str | bytes, *flags: str | Path) -> tuple[int, list[dict[str, Any]]]:
        result = infer_cli("classify", "-m", fake_model, "--json", *flags, stdin=stdin)
        assert "Traceback" not in result.output
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]

    return run


def asked(row: dict[str, Any]) -> str:
    """The text that a row of output is about, by the fields that it keeps of the input."""
    fields = row.get("body", row)
    messages = fields.get("messages", [{}])
    found: str = fields.get("prompt", fields.get("text", messages[-1].get("content")))
    return found


def prompts_of(rows: list[dict[str, Any]]) -> list[str]:
    return [asked(row) for row in rows]


@pytest.mark.parametrize("stdin", ["one\ntwo\n", "one\r\ntwo", "\ufeffone\n\n \ntwo\n"])
def test_lines_of_text(classified: Any, stdin: str) -> None:
    code, rows = classified(stdin)
    assert (code, prompts_of(rows)) == (0, ["one", "two"])


@pytest.mark.parametrize("name", ["-", "a.txt", "a.jsonl"])
def test_a_file_or_stdin(classified: Any, tmp_path: Path, name: str) -> None:
    data = '{"text": "one"}\n{"text": "two"}\n'
    if name != "-":
        (tmp_path / name).write_text(data)
    code, rows = classified(data, "-i", name if name == "-" else tmp_path / name)
    assert (code, prompts_of(rows)) == (0, ["one", "two"])


def test_format_text_reads_json_as_text(classified: Any) -> None:
    _, rows = classified('{"text": "one"}\n', "--format", "text")
    assert prompts_of(rows) == ['{"text": "one"}']


def test_a_file_called_jsonl_is_jsonl_whatever_it_begins_with(
    classified: Any, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text('oops\n{"text": "two"}\n')
    code, rows = classified("", "-i", tmp_path / "a.jsonl")
    assert code == 5
    assert "line 1 is not valid JSON" in rows[0]["error"]["message"]
    assert rows[1]["text"] == "two"


def test_a_brace_alone_does_not_make_it_jsonl(classified: Any) -> None:
    code, rows = classified("{name} has won\n")
    assert (code, prompts_of(rows)) == (0, ["{name} has won"])


@pytest.mark.parametrize("stdin", ["", "\n\n", "\ufeff"])
def test_nothing_in_nothing_out(classified: Any, stdin: str) -> None:
    assert classified(stdin) == (0, [])


def test_an_input_without_prompts_is_warned_of(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "empty.txt"
    file.write_text("\n")
    for flags, source in ([], "stdin"), (["-i", "-"], "stdin"), (["-i", file], str(file)):
        result = infer_cli("classify", "-m", fake_model, *flags)
        expected = (0, "", f"Warning: no prompts in {source}\n")
        assert (result.exit_code, result.stdout, result.stderr) == expected


def test_a_table_is_read_as_text_when_asked_for(classified: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("one,two\n")
    code, rows = classified("", "-i", tmp_path / "a.csv", "--format", "text")
    assert (code, prompts_of(rows)) == (0, ["one,two"])


def test_a_prompt_that_is_the_name_of_a_file_is_warned_of(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "news.txt"
    file.write_text("text")
    result = infer_cli("classify", "-m", fake_model, file)
    assert (result.exit_code, result.stdout.splitlines()[1]) == (0, f"1\t{file}\t{file}\t")
    assert result.stderr.startswith(f"Warning: {file} is used as a prompt.")
    assert f"-i {file}\n" in result.stderr
    for prompts in ([tmp_path], [file, file], [tmp_path / "other.txt"]):
        assert infer_cli("classify", "-m", fake_model, *prompts).stderr == ""


@pytest.mark.parametrize(
    ("line", "prompt", "identity"),
    [
        ({"prompt": "p"}, "p", {}),
        ({"text": "t", "id": 0}, "t", {"id": 0}),
        ({"prompt": "p", "text": "t", "id": None}, "p", {"id": None}),
        ({"messages": [{"role": "user", "content": "m"}]}, "m", {}),
        ({"custom_id": "c", "body": {"model": "x", "prompt": "b"}}, "b", {"custom_id": "c"}),
        (
            {"custom_id": "c", "body": {"messages": [{"role": "user", "content": "m"}]}},
            "m",
            {"custom_id": "c"},
        ),
    ],
)
def test_the_forms_of_a_json_line(
    classified: Any, line: object, prompt: str, identity: dict[str, object]
) -> None:
    code, rows = classified(json.dumps(line))
    assert (code, asked(rows[0])) == (0, prompt)
    assert {key: rows[0][key] for key in ("id", "custom_id") if key in rows[0]} == identity


def test_field_names_the_text(classified: Any) -> None:
    line = json.dumps({"text": "no", "headline": "yes", "id": 7})
    _, rows = classified(line, "--text-field", "headline")
    assert {"text": "no", "headline": "yes", "id": 7}.items() <= rows[0].items()
    assert rows[0]["token"]["text"] == "yes"


def test_messages_go_through_the_chat_template(classified: Any) -> None:
    conversation = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    line = json.dumps({"messages": conversation})
    _, rows = classified(line, "--system", "s", "--new-turn")
    rendered = "<system>s</system><user>u</user><assistant>a</assistant>"
    assert (asked(rows[0]), rows[0]["token"]["id"]) == ("a", len(rendered))
    own = [{"role": "system", "content": "own"}, *conversation]
    _, rows = classified(json.dumps({"messages": own}), "--system", "s", "--new-turn")
    assert rows[0]["token"]["id"] == len(rendered.replace(">s<", ">own<"))


def test_messages_are_read_as_a_server_reads_them(classified: Any) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "input_text", "text": "two"}]
    turns = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": parts}]
    lines = [
        {"messages": turns},
        {"custom_id": "a", "body": {"model": "m", "messages": turns, "temperature": 0}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        {"messages": [{"role": "tool", "content": "3", "tool_call_id": "1"}]},
    ]
    code, rows = classified("\n".join(map(json.dumps, lines)))
    assert code == 5
    assert [row["error"] for row in rows[:2]] == [None, None]
    rendered = "<system>Be short.</system><user>one\ntwo</user>"
    assert [row["token"]["id"] for row in rows[:2]] == [len(rendered)] * 2
    assert "Message 0, content[0]: A part of type 'image_url'" in rows[2]["error"]["message"]
    assert "messages[0].role='tool'" in rows[3]["error"]["message"]


def test_messages_and_a_template_do_not_go_together(classified: Any) -> None:
    line = json.dumps({"messages": [{"role": "user", "content": "u"}]})
    code, rows = classified(line, "--template", "say {text}")
    assert code == 5
    assert "--template" in rows[0]["error"]["message"]


BAD_LINES = [
    (b'{"text"', "is not valid JSON"),
    (b"[1, 2]", "is not a JSON object"),
    (b'"text"', "is not a JSON object"),
    (b"{}", "has no 'prompt' or 'text'"),
    (b'{"body": {}, "message": "x"}', "has no 'prompt' or 'text'. Expected {"),
    (
        b'{"message": "x", "id": 1}',
        "Available fields: 'message', 'id'. Select the text field with --text-field",
    ),
    (b'{"text": 3}', "'text' is not a string"),
    (b'{"prompt": ["a"]}', "'prompt' is not a string"),
    (b'{"text": "\\ud800"}', "is not valid JSON"),
    (b'{"messages": []}', "'messages' is empty"),
    (b'{"messages": "hi"}', "'messages' is not valid"),
    (b'{"messages": [{"role": "wizard", "content": "x"}]}', "'messages' is not valid"),
    (b'{"messages": [{"role": "user", "content": null}]}', "'messages' is not valid"),
    (b'{"body": "hi"}', "body is not a JSON object"),
    (b'{"text": "\xff"}', "is not valid UTF-8"),
    (b"[" * 100_000, "is not valid JSON"),
]


@pytest.mark.parametrize(("line", "problem"), BAD_LINES)
def test_a_bad_line_is_only_its_own_error(classified: Any, line: bytes, problem: str) -> None:
    code, rows = classified(b'{"text": "before"}\n' + line + b'\n{"text": "after"}\n')
    assert code == 5
    assert [row["error"] is None for row in rows] == [True, False, True]
    kinds = {
        "has no 'prompt'": "MissingFieldError",
        "Available fields": "MissingFieldError",
        "'text' is not a string": "FieldError",
        "'prompt' is not a string": "FieldError",
    }
    kind = next((kind for begin, kind in kinds.items() if problem.startswith(begin)), "InputError")
    assert rows[1]["error"]["type"] == kind
    assert rows[1]["error"]["message"].startswith("line 2")
    assert problem in rows[1]["error"]["message"]
    assert rows[2]["text"] == "after"


def test_bytes_that_are_not_utf8_in_text(classified: Any) -> None:
    code, rows = classified(b"fine\n\xff\xfe bad\nfine too\n")
    assert (code, [row["error"] is None for row in rows]) == (5, [True, False, True])
    assert rows[1]["error"]["message"] == (
        "line 2 is not valid UTF-8 (byte 1). If Excel or another program of Windows wrote the "
        "file, pass --encoding cp1252."
    )


def test_an_argument_that_is_not_utf8(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli.finish("classify", "-m", fake_model, "--json", b"\xff!", "fine")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 5
    assert rows[0]["error"]["message"] == "prompt 1 is not valid UTF-8."
    assert rows[1]["error"] is None


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ")), max_size=6))
def test_any_bytes_make_one_row_per_line_and_no_exception(lines: list[bytes]) -> None:
    source = importlib.import_module("core_cli.reading.source")
    fields = importlib.import_module("core_cli.reading.row").Fields()
    for form in ("text", "jsonl"):
        stream = io.BufferedReader(io.BytesIO(b"\n".join(lines)))
        try:
            rows = list(source.Source(stream, "-", form, fields).rows())
        except click.UsageError as error:  # UTF-16, or packed
            if re.search(r"Pass --encoding|Save |is packed|is Parquet", error.message):
                continue
            raise
        blank = [line for line in lines if not line.removeprefix(b"\xef\xbb\xbf").strip()]
        assert len(lines) - len(blank) <= len(rows) <= len(lines)
        for row in rows:
            row.text.encode()  # never a lone surrogate


def test_blocks_bound_the_memory_and_keep_the_order(
    infer_cli: InferCli, fake_model: Path, classified: Any
) -> None:
    infer_cli("backends")  # imports the fake
    batches = importlib.import_module("core_fake").BATCHES
    batches.clear()
    lines = [f"row {n}" for n in range(2500)]
    _, rows = classified("\n".join(lines))
    assert batches == [32, 64, 128, *[256] * 8, 228]
    assert [(row["line"], row["text"]) for row in rows] == list(enumerate(lines, 1))


def test_a_line_that_is_too_long_is_its_own_row_s_error(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core_cli.reading.MAX_LINE_BYTES", 100)
    file = tmp_path / "lines.txt"
    file.write_bytes(b"one\n" + b"x" * 3000000 + b"\ntwo\n" + b"y" * 101)
    done = infer_cli("classify", "-m", fake_model, "-i", file)
    assert done.exit_code == 5
    rows = [line.split("\t") for line in done.stdout.splitlines()[1:]]
    assert [row[1][:3] for row in rows] == ["one", "xxx", "two", "yyy"]
    assert [row[0] for row in rows] == ["1", "2", "3", "4"]
    assert len(rows[1][1]) == 101
    for place in ("line 2", "line 4"):
        words = f"Error: {place} of {file} is longer than 100 bytes"
        assert words in done.stderr


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="this system has no /dev/zero")
def test_a_prompt_that_is_too_long_is_told_in_flags(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli("classify", "-m", fake_model, "LONG")
    assert "load the model with a larger --context-len, at most 64." in done.stderr


def test_a_line_without_an_end(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli("classify", "-m", fake_model, "-i", "/dev/zero")
    assert done.exit_code == 5
    assert "line 1 of /dev/zero is longer than 16777216 bytes" in done.stderr


def test_a_block_ends_early_where_its_texts_are_long(
    infer_cli: InferCli, fake_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core_cli.rows.asker.LARGEST_TEXT", 1000)
    infer_cli("classify", "-m", fake_model, "x")  # imports the fake
    batches = importlib.import_module("core_fake").BATCHES
    batches.clear()
    done = infer_cli("classify", "-m", fake_model, stdin="x" * 600 + "\n" + "y" * 600 + "\nz\n")
    assert done.exit_code == 0
    assert batches == [2, 1]


def test_labels_of_a_file_without_an_end(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core_cli.flags._MOST_LABELS", 10)
    (tmp_path / "labels").write_text("a\nb\nc\nd\ne\nf\n")
    done = infer_cli("classify", "-m", fake_model, "--labels-file", tmp_path / "labels", "x")
    assert done.exit_code == 2
    assert "is longer than 10 bytes" in done.stderr


def test_json_of_an_option_that_is_nested_too_deeply(infer_cli: InferCli, fake_model: Path) -> None:
    done = infer_cli("classify", "-m", fake_model, "-O", "speed=" + "[" * 100_000, "x")
    assert done.exit_code == 2
    assert "nested too deeply" in done.stderr


def test_a_wrong_field_ends_the_command_before_the_load(
    infer_cli: InferCli, fake_model: Path
) -> None:
    lines = '{"ticket": 1, "message": "a"}\n{"ticket": 2, "message": "b"}\n'
    (fake_model / "error.txt").write_text("it was loaded")
    near = infer_cli("classify", "-m", fake_model, "--text-field", "mesage", stdin=lines)
    assert (near.exit_code, near.stdout) == (2, "")
    assert "line 1 has no 'mesage'. Available fields: 'ticket', 'message'" in near.stderr
    assert "Did you mean --text-field message?" in near.stderr
    none = infer_cli("classify", "-m", fake_model, stdin=lines)
    assert (none.exit_code, none.stdout) == (2, "")
    assert "Select the text field with --text-field" in none.stderr


def test_a_later_row_without_the_field_is_its_own_error(
    infer_cli: InferCli, fake_model: Path
) -> None:
    lines = '{"message": "a"}\n{"ticket": 2}\n{"message": "c"}\n'
    done = infer_cli("classify", "-m", fake_model, "--text-field", "message", "--json", stdin=lines)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.exit_code == 5
    assert [row["error"] and row["error"]["type"] for row in rows] == [
        None,
        "MissingFieldError",
        None,
    ]


def test_a_template_s_field_that_a_later_row_lacks(infer_cli: InferCli, fake_model: Path) -> None:
    flags = ("classify", "-m", fake_model, "--template", "{title}: {text}", "--json")
    lines = '{"title": "A", "text": "a"}\n{"text": "b"}\n{"title": null, "text": "c"}\n'
    done = infer_cli(*flags, stdin=lines)
    errors = [json.loads(line)["error"] for line in done.stdout.splitlines()]
    assert (done.exit_code, errors[0]) == (5, None)
    assert errors[1]["message"].startswith("line 2 has no 'title'. Available fields: 'text'.")
    assert errors[2]["message"] == "line 3 has no field 'title', which --template uses."
    wrong = infer_cli(*flags[:-2], "{titel}: {text}", stdin=lines)
    assert (wrong.exit_code, wrong.stdout) == (2, "")
    assert (
        "line 1 has no 'titel'. Available fields: 'title', 'text'. Did you mean {title}?"
        in " ".join(wrong.stderr.split())
    )


def test_a_limit_takes_the_first_rows(infer_cli: InferCli, fake_model: Path) -> None:
    two = infer_cli("classify", "-m", fake_model, "--limit", "2", stdin="a\n\nb\nc\n")
    assert two.stdout.splitlines()[1:] == ["1\ta\ta\t", "3\tb\tb\t"]
    one = infer_cli("classify", "-m", fake_model, "--limit", "1", "x", "y")
    assert one.stdout.splitlines()[1:] == ["1\tx\tx\t"]
    assert infer_cli("classify", "-m", fake_model, "--limit", "0", "x").exit_code == 2
