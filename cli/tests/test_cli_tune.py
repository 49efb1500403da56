"""``infer-cli tune``: a table of candidates, and a task file of the best."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core_tasks

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

ROOT = Path(__file__).parents[2]
GOOD, BAD = "{text} is", "b b b b {text} is"
ASKED = ("--template", BAD, "--template", GOOD, "--labels", "a,b")

Run = Callable[..., "Result"]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Sixty texts with their right labels, and one that cannot be asked."""
    file = tmp_path / "rows.jsonl"
    lines = [{"text": "ab"[n % 2] * 2 + f" {n}", "gold": "ab"[n % 2]} for n in range(60)]
    file.write_text("\n".join(map(json.dumps, [*lines, {"text": "", "gold": "a"}])))
    return file


def test_the_best_is_written_as_a_task_that_can_be_asked(
    run: Run, rows: Path, tmp_path: Path
) -> None:
    file = tmp_path / "task.toml"
    flags = ("--gold", "gold", "--level", "raw", "--error-rate", "0.2", "-o", file)
    done = run("tune", "-i", rows, *ASKED, *flags)
    assert done.exit_code == 0, done.output
    head, first, second = (line.split("\t") for line in done.stdout.splitlines())
    assert (head[0], first[0], second[0]) == ("TEMPLATE", GOOD, BAD)
    assert first[head.index("ACCURACY")] == "1.000"
    assert "The best of 2 has an accuracy of 100.0 % on" in done.stderr
    assert "nested cross-validation" in done.stderr
    task = core_tasks.load_task(file)
    assert (task.template, task.level) == (GOOD, "raw")
    assert task.threshold is not None
    asked = run("classify", "--task", file, "-i", rows, "--json", "--limit", "4")
    assert [json.loads(line)["label"] for line in asked.stdout.splitlines()] == [*"abab"]


def test_words_and_levels_are_tried(run: Run, rows: Path, tmp_path: Path) -> None:
    listed = tmp_path / "templates.txt"
    listed.write_text(f"{GOOD}\n\nOf:\\n{{text}} is\n")
    begun = tmp_path / "begun.toml"
    core_tasks.Task(BAD, ("a", "b")).save(begun)
    flags = ("--templates", listed, "--task", begun, "--words", "a=a,x", "--words", "b=y")
    done = run("tune", "-i", rows, "--gold", "gold", *flags, "--json", "--level", "L0")
    assert done.exit_code == 0, done.output
    trials = json.loads(done.stdout)["trials"]
    assert {trial["method"] for trial in trials} == {"batch", "content-free", "pmi"}
    assert {trial["template"] for trial in trials} == {GOOD, "Of:\n{text} is", BAD}
    assert {tuple(trial["words"]["a"]) for trial in trials} == {("a",), ("a", "x")}
    assert {tuple(trial["words"]["b"]) for trial in trials} == {("b",), ("y",)}


def test_without_right_labels_it_says_how_weak_the_signs_are(run: Run, rows: Path) -> None:
    done = run("tune", "-i", rows, *ASKED)
    assert done.exit_code == 0, done.output
    assert "weak signals" in done.stderr
    assert "ACCURACY" not in done.stdout.splitlines()[0]


def test_a_head_is_told_beside_with_the_command_that_learns_it(run: Run, rows: Path) -> None:
    done = run("tune", "-i", rows, "--gold", "gold", *ASKED, "--level", "raw", "--level", "L2")
    assert done.exit_code == 0, done.output
    assert "A classifier head (L2) needs no prompt. Its accuracy on held-out rows is" in done.stderr
    assert f"--gold gold -i {rows} -o head.safetensors" in done.stderr
    told = json.loads(run("tune", "-i", rows, "--gold", "gold", *ASKED, "--json").stdout)
    assert told["head"]["accuracy"] > 0.9
    plain = run("tune", "-i", rows, "--gold", "gold", *ASKED, "--json", "--level", "raw")
    assert json.loads(plain.stdout)["head"] is None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((*ASKED, "--level", "L2"), "--level L2 requires another level next to it."),
        ((*ASKED, "--level", "raw", "--level", "L2"), "--level L2 requires --gold"),
        ((), "Nothing to try. Pass --template, --templates or --task."),
        (("--template", GOOD), "Pass --labels, a --task that has them, or --gold."),
        (("--labels", "a,b"), "With a language model, tune requires --template."),
        ((*ASKED, "--words", "a"), "Expected --words LABEL=A,B, got 'a'."),
        ((*ASKED, "--words", "c=d"), "words has the unknown label 'c'"),
        (("--template", "no place", "--labels", "a,b"), "must contain {text}"),
        ((*ASKED, "--level", "L1"), "Level L1 requires gold labels"),
        ((*ASKED, "--error-rate", "0.1"), "An error rate requires gold labels"),
        ((*ASKED, "--limit", "3"), "3 texts are usable, but a choice requires at least 10"),
        (
            (*ASKED, "--gold", "nothing"),
            "line 1 has no 'nothing'. Available fields: 'text', 'gold'.",
        ),
        (("--template", GOOD, "--labels", "a,c", "--gold", "gold"), "not among the labels: 'b' ("),
    ],
)
def test_what_makes_no_sense_is_told(
    run: Run, rows: Path, flags: tuple[str, ...], told: str
) -> None:
    done = run("tune", "-i", rows, *flags)
    assert done.exit_code in (1, 2)
    assert told in " ".join(done.output.split())


def test_a_file_of_templates_that_is_no_text_is_told(run: Run, rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "templates.txt"
    file.write_bytes(b"\xff\xfe{text}")
    done = run("tune", "-i", rows, "--templates", file, "--labels", "a,b")
    assert done.exit_code == 2
    assert "is not UTF-8" in done.output


def test_an_existing_task_is_not_written_over(run: Run, rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text("mine")
    for flags in ((), ("--overwrite",)):
        refused = run("tune", "-i", rows, *ASKED, "-o", file, *flags)
        assert "is not a task written by this program" in refused.output
    assert file.read_text() == "mine"
    file.unlink()
    assert run("tune", "-i", rows, *ASKED, "-o", file).exit_code == 0
    assert "exists. Replace it" in run("tune", "-i", rows, *ASKED, "-o", file).output
    assert run("tune", "-i", rows, *ASKED, "-o", file, "--overwrite").exit_code == 0


def test_the_right_prompt_wins_on_a_real_model(infer_cli: InferCli, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    good = "{text} This news is about"
    done = infer_cli(
        *("tune", "-m", "smollm2-135m-instruct", "--backend", "mlx_cpu", "--limit", "24"),
        *("-i", ROOT / "examples" / "headlines.jsonl", "--gold", "label", "--level", "raw"),
        *("--labels", "finance,sports,science,technology", "--template", "Domain of {text}:"),
        *("--template", good, "-o", file),
    )
    assert done.exit_code == 0, done.output
    assert core_tasks.load_task(file).template == good


def test_a_prompt_that_is_no_better_than_guessing_is_not_praised(run: Run, rows: Path) -> None:
    done = run(
        "tune", "-i", rows, "--gold", "gold", *ASKED[:2], "--labels", "a,b", "--level", "raw"
    )
    assert done.exit_code == 0, done.output
    assert "for comparison, always 'a': 50.0 %; character n-grams (naive Bayes" in done.stderr
    assert "No prompt is shown to be better than always answering 'a'." in done.stderr
    assert "always answering 'a'. Try:\n- " in done.stderr


def test_of_a_good_prompt_nothing_else_is_advised(run: Run, tmp_path: Path, rows: Path) -> None:
    lines = [json.loads(line) for line in rows.read_text().splitlines()[:60]]
    file = tmp_path / "plain.jsonl"
    # Every text has other letters, so that n-grams learn nothing.
    file.write_text("\n".join(json.dumps(line | {"text": line["text"][:2]}) for line in lines))
    done = run("tune", "-i", file, "--gold", "gold", "--template", GOOD, "--labels", "a,b")
    assert done.exit_code == 0, done.output
    assert "No prompt is shown" not in done.stderr


def test_the_table_fits_80_columns(run: Run, rows: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core_cli import output

    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    long = "A template of many words, which is longer than a line of eighty columns: {text} is"
    flags = ("--template", long, "--template", "Of:\\n{text} is", "--labels", "a,b")
    for more in (("--gold", "gold"), ()):
        done = run("tune", "-i", rows, *flags, *more)
        assert done.exit_code == 0, done.output
        first, second, head, *table = done.stdout.splitlines()
        assert {first, second} == {f" 1  {long}", " 2  Of:\\n{text} is"} or {first, second} == {
            f" 2  {long}",
            " 1  Of:\\n{text} is",
        }
        assert head.split()[:2] == ["#", "METHOD"]
        assert all(len(line) <= 80 for line in (head, *table))
        assert {line.split()[0] for line in table} == {"1", "2"}
