"""What is said of labels that are worth little: which rows, why, and the command that mends it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core_cli.flags import RowFlags
from core_cli.jobs.summary import Doubts
from core_cli.suggestions import calibrate_command
from core_tasks import load_task

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

Run = Callable[..., "Result"]
ASKED = ("--template", "b b {text} is", "--labels", "a,b")  # of itself it says b twice


@pytest.fixture
def run(infer_cli: InferCli, fake_model: Path) -> Run:
    """``classify`` with the fake model; never a traceback."""

    def call(*flags: str | Path) -> Result:
        result = infer_cli("classify", "-m", fake_model, "--backend", "fake", *flags)
        assert "Traceback" not in result.output
        return result

    return call


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A hundred texts, half of which say a, and half b."""
    file = tmp_path / "rows.jsonl"
    lines = (json.dumps({"text": f"{'ab'[n % 2]} " * (1 + n % 4)}) for n in range(100))
    file.write_text("\n".join(lines))
    return file


def answer(share: float, mass: float = 0.5, said: tuple[str, float] | None = None) -> Any:
    """An answer whose label a has this share."""
    found = {"label": "ab"[share < 0.5], "label_mass": mass, "level": "raw"}
    found["logprobs"] = {"a": math.log(mass * share), "b": math.log(mass * (1 - share))}
    if said is not None:
        found["token"] = {"text": said[0], "logprob": math.log(said[1])}
    return found


def told(answers: list[Any], command: str | None = "mend it") -> str:
    """What is said of these."""
    doubts = Doubts()
    for each in answers:
        doubts.add(each)
    labels = [each["label"] for each in answers]
    counts = {label: labels.count(label) for label in "ab"}
    return "\n".join(doubts.lines(counts, command))


def test_nothing_is_said_of_labels_that_follow_their_texts() -> None:
    assert told([answer(share) for share in (0.9, 0.1, 0.8, 0.2) * 25]) == ""


def test_nothing_is_said_of_a_few_rows() -> None:
    assert told([answer(0.9)] * 19) == ""


def test_a_prompt_that_decides_is_told_with_what_mends_it() -> None:
    said = told([answer(share) for share in (0.9, 0.6) * 49] + [answer(0.4)] * 10)
    assert "45 % of 108 rows the label changes" in said
    assert said.endswith("To subtract the prior, run:\nmend it")


def test_rows_that_are_uneven_in_truth_are_no_prompt_that_decides() -> None:
    said = told([answer(0.99)] * 80 + [answer(0.01)] * 20)
    assert said == ""


def test_a_label_that_never_comes_is_told_with_what_shows_why() -> None:
    said = told([answer(0.99)] * 100)
    assert "100 % of the rows get the label 'a'" in said
    assert "labels never chosen: 'b'." in said
    assert "measure the accuracy: --gold FIELD." in said
    assert "mend it" not in said  # the texts may be as uneven


def test_a_calibrated_row_tells_nothing_of_the_prompt() -> None:
    rows = [answer(share) for share in (0.9, 0.6) * 49] + [answer(0.4)] * 20
    assert "the prompt favours a label" in told(rows)
    assert told([{**row, "level": "content-free"} for row in rows]) == ""
    assert "mend" not in told([{**answer(0.9), "level": "content-free"}] * 100)


@pytest.mark.parametrize(
    ("mass", "probability", "tiny"),
    [(1e-5, 0.9, True), (1e-3, 0.9, False), (1e-5, 1e-3, False), (1e-7, 1e-5, True)],
)
def test_labels_beside_the_point_are_told_with_what_the_model_would_rather_say(
    mass: float, probability: float, tiny: bool
) -> None:
    shares = (0.9, 0.1)
    said = told([answer(share, mass, ("\n", probability)) for share in shares])
    wanted = (
        "in 2 rows no label is a likely continuation (very low label_mass); "
        "the likeliest token is '\\n' (2)"
    )
    assert (wanted in said) is tiny
    assert bool(said) is tiny


def test_a_mass_that_was_read_back_without_its_token_counts_below_a_millionth() -> None:
    assert "(very low label_mass). Reword" in told([answer(0.5, 1e-7)])
    assert told([answer(0.5, 1e-5)]) == ""


def test_the_command_that_is_told_mends_it(
    run: Run, rows: Path, tmp_path: Path, infer_cli: InferCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("--template", "b b b b {text} is", *ASKED[2:])
    done = run("-i", rows, *asked, "--json")
    assert done.exit_code == 0, done.output
    assert "the label changes when the prior is subtracted" in done.stderr
    command = shlex.split(done.stderr.splitlines()[-1])
    assert command[:2] == ["infer-cli", "calibrate"]

    monkeypatch.chdir(tmp_path)
    mended = infer_cli(*command[1:])
    assert mended.exit_code == 0, mended.output
    assert load_task("task.toml").level == "content-free"
    again = run("-i", rows, "--task", "task.toml", "--json", "-v")
    assert "Note:" not in again.stderr
    labels = [json.loads(line)["label"] for line in again.stdout.splitlines()]
    raw = [json.loads(line)["label"] for line in done.stdout.splitlines()]
    right = ["ab"[n % 2] for n in range(100)]
    assert sum(map(str.__eq__, labels, right)) > sum(map(str.__eq__, raw, right))


def test_a_job_reports_them(run: Run, rows: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = run("-i", rows, *ASKED, "-o", tmp_path / "out.jsonl", "--report", report)
    assert "the prompt favours a label" in done.stderr
    found = json.loads(report.read_text())
    assert found["rows_decided_by_the_prompt"]["of"] == 100
    assert found["rows_decided_by_the_prompt"]["moved"] > 20


def test_the_command_asks_the_same_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.txt").write_text("Text: {text}\nTopic:")
    flags = RowFlags(model="m m", file="in.csv", form="csv", field="body", labels="a,b")
    asked = calibrate_command(replace(flags, template_file="t.txt", label_prefix=""))
    assert asked == (
        "infer-cli calibrate -m 'm m' --format csv --text-field body -i in.csv "
        "--template-file t.txt --labels a,b --label-prefix '' -o task.toml"
    )
    finished = calibrate_command(RowFlags(model="m", labels="a,b"))
    assert finished == (
        "infer-cli calibrate -m m -i FILE --template '{text}' --labels a,b -o task.toml"
    )
    assert calibrate_command(RowFlags(model="m", task="t.toml", file="-")) == (
        "infer-cli calibrate -m m -i FILE --task t.toml -o task.toml"
    )
    assert calibrate_command(replace(flags, chat=True)) is None
    assert (
        calibrate_command(replace(flags, labels=None)) is None
    )  # requests that ask for themselves
    other = replace(flags, form="jsonl", template="{title} {text}")
    assert calibrate_command(other) is None
    adapted = calibrate_command(replace(flags, adapter_path="a dir", gold="label", form="auto"))
    assert adapted is not None
    # The rows that were compared with gold labels are not those to fit on.
    assert "--adapter-path 'a dir' --text-field body --gold label -i FILE" in adapted


def test_a_shown_prompt_says_what_the_model_would_say(run: Run, rows: Path) -> None:
    done = run("-i", rows, *ASKED, "--show-prompt")
    assert "the likeliest next token is 'is'" in done.stderr
