"""The labels that gold has: the default ones, and those that the task lacks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

ROWS = "text,section\na,news\nb,sports\nc,News\nd,GNU R\ne,GNU R\nf,\n"
DIFFERENT = "'GNU R' (2 rows), 'News' (1 row; differs from 'news' in case)"


@pytest.fixture
def gold_file(tmp_path: Path) -> Path:
    file = tmp_path / "gold.csv"
    file.write_text(ROWS)
    return file


@pytest.fixture
def unloaded(fake_model: Path) -> Path:
    (fake_model / "error.txt").write_text("it was loaded")
    return fake_model


def test_the_labels_are_those_in_the_gold_field(
    infer_cli: InferCli, fake_model: Path, gold_file: Path
) -> None:
    flags = ("-i", gold_file, "--gold", "section", "--json")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert done.exit_code == 0
    assert "labels in 'section': 'GNU R', 'News', 'news', 'sports'\n" in done.stderr
    first = json.loads(done.stdout.splitlines()[0])
    assert set(first["probabilities"]) == {"GNU R", "News", "news", "sports"}


def test_gold_labels_that_the_labels_lack_are_listed_first(
    infer_cli: InferCli, fake_model: Path, gold_file: Path
) -> None:
    flags = ("-i", gold_file, "--gold", "section", "--labels", "news,sports")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert done.exit_code == 0
    warning = f"Warning: 2 gold labels are not among the labels: {DIFFERENT}. These rows count as"
    assert done.stderr.startswith(warning)


def test_spaces_are_pointed_out(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "gold.jsonl"
    file.write_text('{"text": "a", "gold": " news"}\n')
    flags = ("-i", file, "--gold", "gold", "--labels", "news,sports")
    done = infer_cli("classify", "-m", fake_model, *flags)
    assert "' news' (1 row; differs from 'news' in spaces)" in done.stderr


@pytest.mark.parametrize("command", ["tune", "calibrate"])
def test_commands_that_fit_refuse_other_labels_with_all_of_them(
    infer_cli: InferCli, unloaded: Path, gold_file: Path, tmp_path: Path, command: str
) -> None:
    flags = ("-i", gold_file, "--gold", "section", "--labels", "news,sports")
    more = ("--template", "{text}", "-o", tmp_path / "task.toml")
    done = infer_cli(command, "-m", unloaded, *flags, *more)
    assert done.exit_code == 2
    assert f"2 gold labels are not among the labels: {DIFFERENT}." in done.stderr
    assert "The labels of the task are 'news', 'sports'." in done.stderr


@pytest.mark.parametrize("command", ["tune", "calibrate"])
def test_commands_that_fit_take_the_labels_of_the_rows(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, command: str
) -> None:
    file, task = tmp_path / "gold.csv", tmp_path / "task.toml"
    file.write_text(
        "text,section\n" + "".join(f"{'a b'[: 1 + n % 3]},{'ab'[n % 2]}\n" for n in range(20))
    )
    flags = ("-i", file, "--gold", "section", "--template", "b b {text} is", "-o", task)
    done = infer_cli(command, "-m", fake_model, *flags)
    assert done.exit_code == 0, done.stderr
    assert "labels in 'section': 'a', 'b'" in done.stderr
    assert 'labels = ["a", "b"]' in task.read_text()


def test_a_field_of_ids_is_not_taken_for_labels(
    infer_cli: InferCli, unloaded: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gold.csv"
    file.write_text("text,key\n" + "".join(f"text {n},{n}\n" for n in range(60)))
    done = infer_cli("classify", "-m", unloaded, "-i", file, "--gold", "key")
    assert done.exit_code == 2
    assert "'key' has 60 different values in 60 rows, too many for labels." in done.stderr


def test_stdin_is_read_once(infer_cli: InferCli, unloaded: Path) -> None:
    done = infer_cli("classify", "-m", unloaded, "--gold", "section", stdin=ROWS)
    assert done.exit_code == 2
    assert "pass -i FILE, or --labels" in done.stderr


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ('"arts, crafts",sports', ["arts, crafts", "sports"]),
        ("a, b ,c", ["a", "b", "c"]),
        ('"say ""hi""",b', ['say "hi"', "b"]),
        ("it's,5\" disk", ["it's", '5" disk']),
    ],
)
def test_labels_are_a_record_of_csv(
    infer_cli: InferCli, fake_model: Path, text: str, labels: list[str]
) -> None:
    done = infer_cli("classify", "-m", fake_model, "a", "--labels", text, "--json")
    assert list(json.loads(done.stdout)["probabilities"]) == labels


def test_an_open_quote_is_refused(infer_cli: InferCli, unloaded: Path) -> None:
    done = infer_cli("classify", "-m", unloaded, "a", "--labels", '"arts, crafts')
    assert done.exit_code == 2
    assert "put in double quotes" in done.stderr


def test_the_worst_labels_come_first_and_the_rest_is_counted(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gold.csv"
    names = [f"label{n:02}" for n in range(15)]
    file.write_text("text,section\n" + "".join(f"text,{name}\n" for name in names for _ in "abc"))
    done = infer_cli("classify", "-m", fake_model, "-i", file, "--gold", "section")
    lines = [line for line in done.stderr.splitlines() if ": precision" in line]
    scores = [float(line.split("F1 ")[1].split(",")[0]) for line in lines]
    assert scores == sorted(scores)
    assert len(lines) == 12
    assert "  and 3 labels more: --report\n" in done.stderr
