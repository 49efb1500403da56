"""The fields of the input that flags name: nested ones, wrong ones, and the gold labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

MAILS = [
    {"mail": {"subject": "one", "body": "first"}, "tags": [{"kind": "a"}], "key": {"id": 7}},
    {"mail": {"subject": "two", "body": "second"}, "tags": [{"kind": "b"}], "key": {"id": 8}},
]


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    file = tmp_path / "mails.jsonl"
    file.write_text("".join(json.dumps(mail) + "\n" for mail in MAILS))
    return file


@pytest.fixture
def unloaded(fake_model: Path) -> Path:
    """A model that no command may load."""
    (fake_model / "error.txt").write_text("it was loaded")
    return fake_model


def rows_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def test_nested_fields_by_dotted_path(infer_cli: InferCli, fake_model: Path, mails: Path) -> None:
    named = ("--text-field", "mail.body", "--id-field", "key.id", "--gold", "tags.0.kind")
    flags = ("-i", mails, *named, "--labels", "a,b", "--keep", "id", "--json")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert done.exit_code == 0, done.stderr
    assert [row["key.id"] for row in rows_of(done.stdout)] == [7, 8]
    assert "of 2," in done.stderr  # both have a gold label


def test_a_template_fills_in_nested_fields(
    infer_cli: InferCli, fake_model: Path, mails: Path
) -> None:
    flags = ("-i", mails, "--template", "{mail.subject}: {mail.body}", "--show-prompt")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert "one: first" in done.stdout


def test_a_field_of_that_very_name_comes_first(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a.b": "whole", "a": {"b": "part"}}\n')
    flags = ("-i", file, "--text-field", "a.b", "--show-prompt")
    assert "whole" in infer_cli("classify", "-m", fake_model, *flags).stdout


def test_nested_columns_of_parquet(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.Table.from_pylist(MAILS), tmp_path / "mails.parquet")
    flags = ("-i", tmp_path / "mails.parquet", "--text-field", "mail.body", "--json")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert (done.exit_code, len(rows_of(done.stdout))) == (0, 2)
    wrong = infer_cli("classify", "-m", fake_model, "-i", flags[1], "--text-field", "mail.bdy")
    assert wrong.exit_code == 2
    assert "Did you mean --text-field mail.body?" in wrong.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--text-field", "mail"), "'mail' is not a string but an object."),
        (("--text-field", "tags"), "'tags' is not a string but an array."),
        (("--text-field", "key.id"), "'key.id' is not a string but a number."),
        (("--text-field", "mail.bdy"), "Did you mean --text-field mail.body?"),
        (("--template", "{mail.subjct}"), "Did you mean {mail.subject}?"),
        (("--text-field", "mail.body", "--id-field", "key.i"), "Did you mean --id-field key.id?"),
        (
            ("--text-field", "mail.body", "--gold", "tag", "--labels", "a,b"),
            "Did you mean --gold tags?",
        ),
    ],
)
def test_a_wrong_field_is_refused_before_the_model_is_loaded(
    infer_cli: InferCli, unloaded: Path, mails: Path, flags: tuple[str, ...], message: str
) -> None:
    done = infer_cli("classify", "-m", unloaded, "-i", mails, *flags)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert "'mail.subject', 'mail.body'" in done.stderr


def test_null_in_the_first_row_is_an_error_of_that_row(
    infer_cli: InferCli, fake_model: Path
) -> None:
    done = infer_cli("classify", "-m", fake_model, "--json", stdin='{"text": null}\n{"text": "a"}')
    assert done.exit_code == 5
    assert [row["error"] is None for row in rows_of(done.stdout)] == [False, True]


@pytest.mark.parametrize("command", ["classify", "learn", "tune", "calibrate"])
def test_a_wrong_gold_column_is_refused_before_the_model_is_loaded(
    infer_cli: InferCli, unloaded: Path, tmp_path: Path, command: str
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("text,section\na,news\nb,sports\n")
    labels = ("--labels", "news,sports")
    flags: dict[str, tuple[str | Path, ...]] = {
        "classify": labels,
        "learn": ("-o", tmp_path / "head.safetensors"),
        "tune": (*labels, "--template", "{text}"),
        "calibrate": (*labels, "--template", "{text}", "-o", tmp_path / "task.toml"),
    }
    done = infer_cli(command, "-m", unloaded, "-i", file, "--gold", "secton", *flags[command])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Did you mean --gold section?" in done.stderr


def test_rows_may_lack_the_gold_label(infer_cli: InferCli, fake_model: Path) -> None:
    lines = '{"text": "a"}\n{"text": "b", "section": "news"}\n'
    flags = ("--gold", "section", "--labels", "news,sports", "--json")
    done = infer_cli("classify", "-m", fake_model, *flags, stdin=lines)
    assert done.exit_code == 0
    assert "of 1," in done.stderr
