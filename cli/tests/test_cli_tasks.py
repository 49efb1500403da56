"""Task files on the command line: made by ``calibrate``, asked by ``classify --task``."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
import core_tasks
from core_tasks import load_task

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

ROWS = 60
TEMPLATE = "b b {text} is"  # of itself it says b twice

Run = Callable[..., "Result"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Texts with their right labels, of which a tenth are wrong; some cannot be asked."""
    file = tmp_path / "rows.jsonl"
    with open(file, "w") as stream:
        for n in range(ROWS):
            right = "ab"[n % 2]
            text = f"{'ab'[n % 2 ^ (n % 10 == 0)]} " * (1 + n % 4)
            stream.write(json.dumps({"text": text, "gold": right}) + "\n")
        stream.write('{"text": "", "gold": "a"}\n{"text": 5, "gold": "a"}\n{"text": "a"}\n')
    return file


TEMPERATURE = ("--method", "temperature")
ASKED = ("--template", TEMPLATE, "--labels", "a,b")


def test_a_prior_is_taken_off_without_labels(run: Run, rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    template = "b b b b {text} is"
    asked = ("--template", template, "--labels", "a,b")
    done = run("calibrate", "-i", rows, *asked, "-o", file)
    assert done.exit_code == 0, done.output
    task = load_task(file)
    assert (task.level, task.template, task.labels) == ("content-free", template, ("a", "b"))
    assert task.calibration is not None
    assert task.calibration.method == "content-free"
    assert "2 rows skipped: The text of line 61 is blank." in done.stderr
    counts = {line.split(":")[0]: line for line in done.stderr.splitlines() if ": a " in line}
    assert counts.keys() == {"raw", "content-free"}
    assert int(counts["content-free"].split()[2].rstrip(",")) > int(
        counts["raw"].split()[2].rstrip(",")
    )


@pytest.mark.parametrize("method", ["temperature", "isotonic"])
def test_what_is_fitted_on_right_labels_is_told_of_rows_that_it_has_not_seen(
    run: Run, rows: Path, tmp_path: Path, method: str
) -> None:
    file = tmp_path / "task.toml"
    methods = ("--method", "batch", "--method", method)
    flags = ("--gold", "gold", *methods, "--error-rate", "0.3")
    done = run("calibrate", "-i", rows, *ASKED, *flags, "-o", file)
    assert done.exit_code == 0, done.output
    task = load_task(file)
    assert task.calibration is not None
    assert (task.level, task.calibration.method) == (f"batch+{method}", f"batch+{method}")
    assert task.threshold is not None
    lines = done.stderr.splitlines()
    begins = ("Warning: 54", "raw: ", f"batch+{method}: ", "for comparison, ", "threshold ")
    repeats, raw, fitted, compared, accepted = (
        next(line for line in lines if line.startswith(begin)) for begin in begins
    )
    assert compared.startswith("for comparison, always 'a': 50.0 %; character n-grams")
    assert "54 rows repeat the text of another row." in repeats
    assert raw.startswith("raw: accuracy ")
    assert " of 60 rows, " in raw
    assert fitted.startswith(f"batch+{method}: accuracy ")
    assert fitted.endswith(", on held-out rows (5 folds)")
    assert accepted.startswith(
        f"threshold {task.threshold:.4f}: 60 of 60 rows accepted, 6 of them wrong"
    )
    assert "at most 30 % of the accepted labels are wrong, with 95 % confidence." in accepted


def test_a_task_is_asked_as_its_file_says(run: Run, rows: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "task.toml", tmp_path / "out.jsonl"
    assert run("calibrate", "-i", rows, *ASKED, "-o", file).exit_code == 0
    done = run("classify", "--task", file, "-i", rows, "--gold", "gold", "-o", out)
    assert done.exit_code == 5
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    known = [answer for answer in answers if "gold" in answer and not answer["error"]]
    right = sum(answer["label"] == answer["gold"] for answer in known)
    assert f"correct: {right} of {len(known)}, " in done.stderr
    assert {answer["level"] for answer in answers} == {"content-free"}
    task = load_task(file)
    texts = [row["text"] for row in answers[:ROWS]]
    with core.load_model(tmp_path / "model", backend="fake") as model:
        for answer, decision in zip(answers, task.classify(model, texts), strict=False):
            assert answer["probabilities"] == decision.probabilities
            assert answer["logprobs"] == decision.logprobs

    # A table has the columns that tell of it, and a job that was broken off comes to the same.
    table, again = tmp_path / "out.csv", tmp_path / "again.csv"
    for target in (table, again):
        run("classify", "--task", file, "-i", rows, "-o", target)
    header = "line,text,gold,label,probability,margin,label_mass,level,error"
    assert table.read_text().splitlines()[0] == header
    journal = tmp_path / "again.csv.journal"
    job, first, *_ = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(job + first)
    os.truncate(again, json.loads(first)["end"])
    assert run("classify", "--task", file, "-i", rows, "-o", again, "--resume").exit_code == 5
    assert again.read_bytes() == table.read_bytes()

    journal.write_bytes(job + first)
    file.write_text(file.read_text().replace("L0", "L1"))
    other = run("classify", "--task", file, "-i", rows, "-o", again, "--resume")
    assert other.exit_code == 2
    assert "task changed from" in other.stderr


def test_what_is_not_accepted_is_unsure(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    core_tasks.Task("{text}", ("a", "b"), threshold=0.8).save(file)
    done = run("classify", "--task", file, "--json", "a a a", "a b")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["label"], one["accepted"]) for one in answers] == [("a", True), ("unsure", False)]


def test_numbers_and_several_labels_have_columns_of_their_own(run: Run, tmp_path: Path) -> None:
    levels, many = tmp_path / "levels.toml", tmp_path / "many.toml"
    core_tasks.Task("{text}", ("1", "2"), mode="levels").save(levels)
    core_tasks.Task("{text} {label}", ("a", "b"), mode="many").save(many)
    found = run("classify", "--task", levels, "--to", "csv", "1 1", "2")
    lines = found.stdout.splitlines()
    assert lines[0] == "line,text,label,value,spread,label_mass,level,error"
    assert float(lines[1].split(",")[3]) < 1.5 < float(lines[2].split(",")[3])
    found = run("classify", "--task", many, "--to", "csv", "yes")
    assert found.stdout.splitlines()[0] == "line,text,labels,label_mass,level,error"
    assert '"[""a"",""b""]"' in found.stdout


def test_the_prompt_of_a_task_is_shown(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    core_tasks.Task("News: {text} is", ("a", "b")).save(file)
    assert run("classify", "--task", file, "--show-prompt", "a b").stdout == "News: a b is\n"


def test_a_task_may_name_its_model(infer_cli: InferCli, fake_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    core_tasks.Task("{text}", ("a", "b"), model=str(fake_model)).save(file)
    done = infer_cli("classify", "--task", file, "--json", "a")
    assert done.exit_code == 0, done.output
    core_tasks.Task("{text}", ("a", "b")).save(file)
    none = infer_cli("classify", "--task", file, "--json", "a")
    assert none.exit_code == 2
    assert "Missing option '-m'" in none.stderr


def test_a_calibration_of_another_model_is_refused_before_the_work(
    run: Run, rows: Path, tmp_path: Path, fake_model: Path
) -> None:
    file, out = tmp_path / "task.toml", tmp_path / "out.csv"
    assert run("calibrate", "-i", rows, *ASKED, "-o", file).exit_code == 0
    weights = fake_model / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    refused = run("classify", "--task", file, "-i", rows, "-o", out)
    assert refused.exit_code == 1
    assert "The calibration was fitted with model" in refused.stderr
    assert not out.exists()


REFUSED = [
    (
        "classify",
        ("--task", "{t}", "--labels", "a,b", "x"),
        "--labels cannot be combined with --task",
    ),
    (
        "classify",
        ("--task", "{t}", "--template", "x", "x"),
        "--template cannot be combined with --task",
    ),
    ("classify", ("--task", "{t}", "--chat", "x"), "--chat cannot be combined with --task"),
    ("classify", ("--task", "{r}", "x"), "This is not a task"),
    ("calibrate", ("-i", "{r}", "-o", "{o}"), "Pass --template and --labels, or --task"),
    ("calibrate", (*ASKED, "-o", "{o}"), "No rows. Pass them with -i FILE."),
    ("calibrate", ("-i", "{r}", *ASKED, "-o", "{t}"), "exists. Replace it (--overwrite"),
    (
        "calibrate",
        ("-i", "{r}", *ASKED, "-o", "{o}", "--method", "batch", "--method", "pmi"),
        "--method batch and --method pmi cannot be combined. Remove one.",
    ),
    (
        "calibrate",
        ("-i", "{r}", *ASKED, "-o", "{o}", "--method", "isotonic"),
        "--method isotonic requires --gold FIELD.",
    ),
    (
        "calibrate",
        ("-i", "{r}", *ASKED, "-o", "{o}", "--error-rate", "0.1"),
        "--error-rate requires --gold FIELD.",
    ),
    (
        "calibrate",
        ("-i", "{r}", *ASKED, "-o", "{o}", "--gold", "gold", *TEMPERATURE, "--strength", "1"),
        "--strength requires a prior",
    ),
    (
        "calibrate",
        ("-i", "{r}", *ASKED, "-o", "{o}", "--gold", "text"),
        "'b ' (3 rows; differs from 'b' in spaces)",
    ),
    (
        "calibrate",
        ("-i", "{r}", *ASKED, "-o", "{o}", "--gold", "truth"),
        "line 1 has no 'truth'. Available fields: 'text', 'gold'.",
    ),
    ("calibrate", ("-i", "{r}", *ASKED, "-o", "{o}", "--text-field", "txt"), "Did you mean"),
]


@pytest.mark.parametrize(("command", "flags", "told"), REFUSED, ids=[case[2] for case in REFUSED])
def test_what_makes_no_sense_is_refused(
    run: Run, rows: Path, tmp_path: Path, command: str, flags: tuple[str, ...], told: str
) -> None:
    names = {"t": tmp_path / "task.toml", "r": rows, "o": tmp_path / "new.toml"}
    core_tasks.Task("{text}", ("a", "b")).save(names["t"])
    asked = [str(names[flag[1]]) if flag in ("{t}", "{r}", "{o}") else flag for flag in flags]
    refused = run(command, *asked)
    assert refused.exit_code in (1, 2)
    assert told in " ".join(refused.stderr.split())
    assert not names["o"].exists()


def test_several_labels_a_row_are_calibrated_each_on_its_own(run: Run, tmp_path: Path) -> None:
    begun, file = tmp_path / "begun.toml", tmp_path / "task.toml"
    words = {"yes": ("a",), "no": ("b",)}
    core_tasks.Task("{text} b {label}", ("a", "b"), words=words, mode="many").save(begun)
    rows = tmp_path / "rows.jsonl"
    with open(rows, "w") as stream:
        for n in range(ROWS):
            found = [label for place, label in enumerate("ab") if n >> place & 1]
            row = {"text": "a " * (1 + n % 3) + "b " * (n % 4), "gold": found}
            stream.write(json.dumps(row) + "\n")
        stream.write('{"text": "a"}\n')
    flags = ("--task", begun, "--gold", "gold", "--method", "batch", "--method", "temperature")
    done = run("calibrate", "-i", rows, *flags, "-o", file)
    assert done.exit_code == 0, done.output
    fitted = load_task(file)
    assert fitted.calibration is not None
    assert (fitted.level, fitted.calibration.rows) == ("batch+temperature", ROWS)
    assert {*fitted.calibration.adjustments} == {"a", "b"}
    assert "1 row skipped: no gold label" in done.stderr
    assert f"of {2 * ROWS} rows, calibration error" in done.stderr

    done = run("calibrate", "-i", rows, *flags, "--error-rate", "0.95", "-o", file, "--overwrite")
    assert done.exit_code == 0, done.output
    [accepted] = [line for line in done.stderr.splitlines() if line.startswith("threshold ")]
    assert f" of {ROWS} rows accepted, " in accepted  # rows, and not the two questions of each
    assert load_task(file).threshold is not None

    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"text": "a", "gold": ["a", "c"]}\n')
    refused = run("calibrate", "-i", wrong, *flags, "-o", tmp_path / "x.toml")
    assert "'c' (1 row). The labels of the task are 'a', 'b'." in refused.output


def test_with_right_labels_a_prior_goes_below_the_temperature_unless_one_is_there(
    run: Run, rows: Path, tmp_path: Path
) -> None:
    file, again = tmp_path / "task.toml", tmp_path / "again.toml"
    gold = ("-i", rows, "--gold", "gold")
    assert run("calibrate", *gold, *ASKED, "-o", file).exit_code == 0
    assert _method(file) == "content-free+temperature"
    free = ("--method", "content-free", "-o", file, "--overwrite")
    assert run("calibrate", "-i", rows, *ASKED, *free).exit_code == 0
    assert run("calibrate", *gold, "--task", file, "-o", again).exit_code == 0
    assert _method(again) == "content-free+temperature"
    alone = ("--method", "temperature", "-o", file, "--overwrite")
    assert run("calibrate", *gold, *ASKED, *alone).exit_code == 0
    assert _method(file) == "temperature"


def _method(file: Path) -> str:
    calibration = load_task(file).calibration
    assert calibration is not None
    return calibration.method
