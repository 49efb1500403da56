"""``infer-cli label``: rows labelled by hand, on a terminal or from a pipe."""

from __future__ import annotations

import csv
import json
import os
import select
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core_cli.tasks.gold_file import GoldFile, GoldRow
from core_cli.tasks.label_keys import Command, Keys

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

TEXTS = ["a a a b", "a b", "b b b b a", 'said "a, a"', "b"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    return file


def labelled(file: Path) -> list[dict[str, str]]:
    if file.suffix == ".jsonl":
        return [json.loads(line) for line in file.read_text().splitlines()]
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_each_answer_is_written_and_a_session_resumes(
    infer_cli: InferCli, rows: Path, fake_model: Path, tmp_path: Path, suffix: str
) -> None:
    gold = tmp_path / f"gold{suffix}"
    asked = ("label", "-m", fake_model, "-i", rows, "--labels", "a,b", "-o", gold)
    done = infer_cli(*asked, stdin="1\nb\nu\nx\n2\ns\nq\n")
    assert done.exit_code == 0, done.output
    assert "Took back 'b'." in done.stderr
    assert "'x' is not a label." in done.stderr
    assert done.stdout == ""
    # The least sure first; the second after it was labelled wrongly, once more.
    assert labelled(gold)[0]["text"] == "a b"
    assert [row["label"] for row in labelled(gold)] == ["a", "b"]
    assert {int(row["line"]) for row in labelled(gold)} <= {*range(1, 6)}

    again = infer_cli(*asked, stdin="1\n1\n1\n")
    assert "Continuing with 2 labelled rows." in again.stderr
    assert "No row is left." in again.stderr
    assert "the model is right on" in again.stderr
    assert sorted(row["text"] for row in labelled(gold)) == sorted(TEXTS)
    first = labelled(gold)[:2]
    assert [row["label"] for row in first] == ["a", "b"]


def test_the_file_is_read_by_gold_as_suggested(
    infer_cli: InferCli, fake_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = tmp_path / "rows.csv"
    rows.write_text("body\n" + "".join(f"{'ab'[n % 2]} x{n}\n" for n in range(12)), "cp1252")
    asked = ("-i", rows, "--text-field", "body", "--encoding", "cp1252", "--labels", "a,b")
    done = infer_cli("label", "-m", fake_model, *asked, "-o", "my gold.csv", stdin="1\n2\n" * 6)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("infer-cli ")]
    assert "n-grams on" in done.stderr
    learned = infer_cli(*shlex.split(line)[1:])
    assert learned.exit_code == 0, learned.output
    judged = infer_cli("classify", "-m", fake_model, "-i", "my gold.csv", "--gold", "label")
    assert "of 12" in judged.stderr


def test_without_a_model_the_rows_differ(infer_cli: InferCli, rows: Path, tmp_path: Path) -> None:
    gold = tmp_path / "gold.csv"
    done = infer_cli("label", "-i", rows, "--labels", "a,b", "-o", gold, stdin="1\n1\n")
    assert [row["text"] for row in labelled(gold)] == ["a a a b", 'said "a, a"']
    assert "--gold label" in done.stderr


def test_wrong_flags_are_refused_before_the_work(
    infer_cli: InferCli, rows: Path, tmp_path: Path
) -> None:
    asked = ("label", "-i", rows)
    for flags, message in (
        (("--labels", "a", "-o", tmp_path / "g.csv"), "at least two labels"),
        (("--labels", "a,b", "-o", tmp_path / "g.parquet"), ".csv or .jsonl"),
        (("--labels", "a,b", "-o", rows), "is not replaced"),
    ):
        done = infer_cli(*asked, *flags, stdin="1\n")
        assert done.exit_code == 2
        assert message in done.stderr
    GoldFile(str(tmp_path / "g.csv")).add(GoldRow(1, "x", "c"))
    done = infer_cli(*asked, "--labels", "a,b", "-o", tmp_path / "g.csv", stdin="1\n")
    assert "has the label 'c', which --labels lacks" in done.stderr


def test_what_keys_stand_for() -> None:
    keys = Keys(["sports", "science", "u"])
    assert keys.meaning("2") == keys.meaning("SC") == "science"
    assert keys.meaning("s") is Command.SKIP
    assert keys.meaning("u") == "u"
    assert keys.meaning("q") is Command.QUIT
    for text in ("", "4", "0", "x"):
        with pytest.raises(ValueError, match="is not a label"):
            keys.meaning(text)
    with pytest.raises(ValueError, match="begins 'sports', 'science'"):
        Keys(["sports", "science"]).meaning("S")


def test_keys_on_a_terminal(
    infer_cli: InferCli, rows: Path, fake_model: Path, tmp_path: Path
) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    gold = tmp_path / "gold.csv"
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    asked = ("label", "-m", fake_model, "-i", rows, "--labels", "good,bad", "-o", gold)
    shown = ""

    def wait_for(words: str) -> None:
        nonlocal shown
        while words not in shown:
            ready, _, _ = select.select([ours], [], [], 60)
            data = os.read(ours, 65536) if ready else b""
            assert data, f"{words!r} never came: {shown!r}"
            shown += data.decode(errors="replace")
        shown = shown[shown.index(words) + len(words) :]

    with infer_cli.start(*asked, env={"TERM": "xterm"}, **streams) as process:
        os.close(theirs)
        try:
            for keys, words in (("1", "'good'"), ("bx\x7fa\r", "'bad'"), ("u", "Took back 'bad'")):
                wait_for("> ")
                os.write(ours, keys.encode())
                wait_for(words)
            wait_for("> ")
            assert [row["label"] for row in labelled(gold)] == ["good"]
            os.write(ours, b"q")
            assert process.wait(60) == 0
        finally:
            process.kill()
    os.close(ours)
