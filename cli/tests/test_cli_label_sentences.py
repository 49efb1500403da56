"""The commands with an encoder: label sentences, and no log-probabilities anywhere."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import core
import core_tasks
from core.options import LABEL_SENTENCE
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

LABELS = ("--labels", "rain,sun")
Run = Callable[..., "Result"]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> FakeBackend:
    monkeypatch.setattr(REGISTRY, "_registered", dict(REGISTRY._registered))
    encoder = FakeBackend(name="encoder", encoder=True)
    core.register(encoder)
    return encoder


@pytest.fixture
def encode(backend: FakeBackend, infer_cli: InferCli, tmp_path: Path) -> Run:
    """A command with an encoder; never a traceback."""
    model = write_model(tmp_path / "model")

    def call(command: str, *flags: str | Path, backend: str = "encoder") -> Result:
        named = ("--backend", backend) if backend else ()
        result = infer_cli(command, "-m", model, *named, *flags)
        assert "Traceback" not in result.output
        return result

    return call


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Forty texts with their gold labels; the words of one label are in all texts' sentences."""
    file = tmp_path / "rows.jsonl"
    labels = ("rain", "sun")
    texts = [f"{labels[n % 2]} and wind {n % 20}{' wind' * (n % 3)}" for n in range(40)]
    lines = [{"text": text, "gold": labels[n % 2]} for n, text in enumerate(texts)]
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def sentences(backend: FakeBackend) -> set[str]:
    return {call.config.label_sentence for call in backend.calls if call.operation == "classify"}


# --------------------------------------------------------------------------- classify


def test_json_has_null_for_what_an_encoder_lacks(encode: Run, backend: FakeBackend) -> None:
    done = encode("classify", *LABELS, "--json", "--label-sentence", "On {label}", "rain again")
    assert done.exit_code == 0, done.output
    [row] = map(json.loads, done.stdout.splitlines())
    assert row["label"] == "rain"
    assert (row["logprobs"], row["label_mass"], row["token"]) == (None, None, None)
    assert sum(row["probabilities"].values()) == pytest.approx(1)
    assert sentences(backend) == {"On {label}"}


def test_a_table_has_an_empty_cell(encode: Run, rows: Path) -> None:
    done = encode("classify", *LABELS, "-i", rows, "--to", "csv")
    assert done.exit_code == 0, done.output
    records = [*csv.DictReader(io.StringIO(done.stdout))]
    assert {record["label_mass"] for record in records} == {""}
    assert [record["label"] for record in records] == [record["gold"] for record in records]
    assert "label_mass" not in done.stderr  # no warning


def test_the_first_prompt_is_shown_with_a_label_sentence(encode: Run, rows: Path) -> None:
    done = encode("classify", *LABELS, "-i", rows, "--show-prompt")
    assert done.exit_code == 0, done.output
    assert "the sentence of each label: 'This text is about rain.'" in done.stderr
    assert "labels are joined" not in done.stderr
    assert "label mass" not in done.stderr
    assert "  rain\n" in done.stderr  # a probability


def test_a_plain_summary_has_no_warning_of_joining(encode: Run, rows: Path) -> None:
    done = encode("classify", *LABELS, "-i", rows, "--gold", "gold", "-v")
    assert done.exit_code == 0, done.output
    assert "Warning" not in done.stderr
    assert "correct: 40 of 40" in done.stderr


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other backend loads the model."""
    monkeypatch.setattr(type(REGISTRY), "names", lambda self: ["encoder"])


@pytest.mark.usefixtures("alone")
def test_a_call_without_labels_names_what_to_do(encode: Run, backend: FakeBackend) -> None:
    for name in ("encoder", ""):
        done = encode("classify", "rain", backend=name)
        assert done.exit_code == 2
        assert "'encoder' compares this model's texts with label sentences" in done.stderr
        assert "Pass --labels" in done.stderr
    assert not backend.models  # nothing was loaded for it


def test_a_prefix_is_refused_and_so_is_a_sentence_for_a_language_model(encode: Run) -> None:
    done = encode("classify", *LABELS, "--label-prefix", "", "rain")
    assert done.exit_code != 0
    assert "label_sentence instead" in done.stderr or "--label-sentence instead" in done.stderr
    core.register(FakeBackend(labels=lambda prompt, labels: labels[0], name="language"))
    done = encode("classify", *LABELS, "--label-sentence", "{label}!", "rain", backend="language")
    assert done.exit_code != 0
    assert "does not support the option" in done.stderr
    done = encode("classify", *LABELS, "--label-sentence", "no place", "rain")
    assert done.exit_code == 2
    assert "a sentence with {label}" in done.stderr


def test_a_truncated_text_may_fill_the_context(
    backend: FakeBackend, infer_cli: InferCli, tmp_path: Path
) -> None:
    model = write_model(tmp_path / "short", context_length=8)
    done = infer_cli(
        *("classify", "-m", model, "--backend", "encoder", "--labels", "a,b"),
        *("--label-sentence", "{label}", "--truncate", "right", "a b a b a b a b a b"),
    )
    assert done.exit_code == 0, done.output
    assert backend.calls[-1].prompts == ("a b a b ",)


def test_the_help_names_the_default() -> None:
    """As text of its own, since the help of a command does not import the contract."""
    from core_cli.commands.classify import classify

    [option] = [parameter for parameter in classify.params if parameter.name == "label_sentence"]
    assert f"[default: {LABEL_SENTENCE}]" in str(getattr(option, "help", ""))


# --------------------------------------------------------------------------- jobs


def test_a_job_is_resumed_with_its_sentence_alone(encode: Run, rows: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    job = ("classify", *LABELS, "-i", rows, "-o", out)
    assert encode(*job, "--label-sentence", "On {label}").exit_code == 0
    assert "already complete" in encode(*job, "--label-sentence", "On {label}", "--resume").stderr
    done = encode(*job, "--resume")
    assert done.exit_code == 2
    assert "Cannot resume" in done.stderr
    assert [json.loads(line)["label_mass"] for line in out.read_text().splitlines()] == [None] * 40


def test_the_command_that_is_advised_has_the_sentence() -> None:
    from core_cli.flags import RowFlags
    from core_cli.suggestions import calibrate_command

    flags = RowFlags(model="m", labels="a,b", label_sentence="On {label}", file="rows.txt")
    assert "--label-sentence 'On {label}'" in str(calibrate_command(flags))


# --------------------------------------------------------------------------- task files


def test_a_task_is_calibrated_and_used(
    encode: Run, rows: Path, tmp_path: Path, backend: FakeBackend
) -> None:
    file = tmp_path / "task.toml"
    sentence = ("--label-sentence", "rain, wind, about {label}")
    done = encode("calibrate", *LABELS, *sentence, "-i", rows, "-o", file)
    assert done.exit_code == 0, done.output
    task = core_tasks.load_task(file)
    assert task.calibration is not None
    assert (task.calibration.method, task.template) == ("mean", "{text}")
    assert task.label_sentence == sentence[1]

    done = encode("classify", "--task", file, "-i", rows, "--json", "--gold", "gold")
    assert done.exit_code == 0, done.output
    answers = [*map(json.loads, done.stdout.splitlines())]
    assert [answer["label"] for answer in answers] == [answer["gold"] for answer in answers]
    assert {answer["level"] for answer in answers} == {"mean"}
    assert sentences(backend) == {sentence[1]}
    done = encode("classify", "--task", file, *sentence, "rain")
    assert "--label-sentence cannot be combined with --task" in done.stderr
    done = encode("classify", "--task", file, "--show-prompt", "rain")
    assert "of each label: 'rain, wind, about rain'" in done.stderr


def test_only_an_encoder_is_calibrated_without_a_template(
    encode: Run, rows: Path, tmp_path: Path
) -> None:
    file = tmp_path / "task.toml"
    asked = ("calibrate", *LABELS, "-i", rows, "-o", file)
    core.register(FakeBackend(labels=lambda prompt, labels: labels[0], name="language"))
    for sentence in ((), ("--label-sentence", "{label}")):
        done = encode(*asked, *sentence, backend="language")
        assert done.exit_code == 2
        assert "calibrate requires --template" in done.stderr
    assert not file.exists()

    done = encode(*asked)
    assert done.exit_code == 0, done.output
    task = core_tasks.load_task(file)
    assert (task.template, task.label_sentence) == ("{text}", LABEL_SENTENCE)


@pytest.mark.parametrize(
    ("flags", "method"),
    [
        ((), "mean+temperature"),
        (("--method", "content-free"), "content-free"),
        (("--method", "batch", "--method", "isotonic"), "batch+isotonic"),
        (("--method", "mean", "--strength", "0.5"), "mean"),
    ],
)
def test_methods_of_calibrate(
    encode: Run, rows: Path, tmp_path: Path, flags: tuple[str, ...], method: str
) -> None:
    file = tmp_path / "task.toml"
    asked = ("calibrate", *LABELS, "--template", "{text}", "-i", rows, "--gold", "gold")
    done = encode(*asked, *flags, "--error-rate", "0.2", "-o", file)
    assert done.exit_code == 0, done.output
    assert "on held-out rows" in done.stderr
    task = core_tasks.load_task(file)
    assert task.calibration is not None
    assert task.calibration.method == method
    assert task.threshold is not None


def test_what_needs_a_next_token_is_refused(encode: Run, rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    asked = ("calibrate", *LABELS, "--template", "{text}", "-i", rows, "-o", file)
    done = encode(*asked, "--method", "pmi")
    assert "A pmi prior is what follows a prompt" in done.stderr
    core_tasks.Task("{text} {label}?", ("rain", "sun"), mode="many").save(file)
    done = encode("classify", "--task", file, "-i", rows)
    assert done.exit_code != 0
    assert "Use mode='one'" in done.stderr


# --------------------------------------------------------------------------- tune, learn, eval


def test_label_sentences_are_tuned(encode: Run, rows: Path, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    blind = "sun wind " * 9 + "{label}"
    asked = ("tune", *LABELS, "-i", rows, "--gold", "gold", "--level", "raw")
    tried = ("--label-sentence", blind, "--label-sentence", "{label}")
    done = encode(*asked, *tried, "-o", file)
    assert done.exit_code == 0, done.output
    head, first, _ = (line.split("\t") for line in done.stdout.splitlines())
    assert (head[0], first[0]) == ("LABEL SENTENCE", "{label}")
    assert "MASS" not in head
    task = core_tasks.load_task(file)
    assert (task.template, task.label_sentence) == ("{text}", "{label}")

    done = encode(*asked, "--json", "--words", "rain=rain,wet")  # the usual sentences
    assert done.exit_code == 0, done.output
    trials = json.loads(done.stdout)["trials"]
    from core_tasks.tuning import SENTENCES

    assert {trial["label_sentence"] for trial in trials} == {*SENTENCES}
    assert {trial["label_mass"] for trial in trials} == {None}
    assert {tuple(trial["words"]["rain"]) for trial in trials} == {("rain",), ("rain", "wet")}
    done = encode("tune", *LABELS, "-i", rows)
    assert "by stability and margin, which are weak signals" in done.stderr


def test_candidates_of_another_kind_of_model_are_refused(encode: Run, rows: Path) -> None:
    asked = ("tune", *LABELS, "-i", rows)
    done = encode(*asked, "--template", "{text} is")
    assert done.exit_code == 2
    assert "--label-sentence instead of --template" in done.stderr
    core.register(FakeBackend(labels=lambda prompt, labels: labels[0], name="language"))
    done = encode(*asked, "--label-sentence", "{label}", backend="language")
    assert done.exit_code == 2
    assert "Use --template instead of --label-sentence" in " ".join(done.stderr.split())


def test_a_head_is_learned_on_embeddings(encode: Run, rows: Path, tmp_path: Path) -> None:
    head = tmp_path / "head.safetensors"
    done = encode("learn", "-i", rows, "--gold", "gold", "-o", head)
    assert done.exit_code == 0, done.output
    done = encode("classify", "--head", head, "-i", rows, "--json", "--gold", "gold")
    assert done.exit_code == 0, done.output
    answers = [*map(json.loads, done.stdout.splitlines())]
    assert [answer["label"] for answer in answers] == [answer["gold"] for answer in answers]


@pytest.mark.usefixtures("alone")
def test_choices_are_evaluated(encode: Run, tmp_path: Path, backend: FakeBackend) -> None:
    items = tmp_path / "items.jsonl"
    item = {"question": "It will rain.", "choices": ["rain", "sun"], "answer": "rain"}
    items.write_text(json.dumps(item) + "\n")
    asked = ("eval", "-i", items, "--template", "{question}", "--json")
    done = encode(*asked, "--label-sentence", "{label}", backend="")
    assert done.exit_code == 0, done.output
    [record] = map(json.loads, done.stdout.splitlines())
    assert (record["right"], record["logprobs"], record["right_normalised"]) == (True, None, None)
    assert sentences(backend) == {"{label}"}
    done = encode("eval", "-i", items, "--metric", "exact", "--gold", "answer")
    assert "does not support generate" in done.stderr
    done = encode("eval", "-i", items, "--letters")
    assert done.exit_code == 1
    assert "without letters" in done.stderr


def test_rows_are_timed(encode: Run) -> None:
    done = encode("bench", "--kind", "classify", "--json")
    assert done.exit_code in (0, 2), done.output


# --------------------------------------------------------------------------- a task of another kind


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("of_encoder", [True, False])
@pytest.mark.parametrize("with_encoder", [True, False])
def test_a_task_of_the_other_kind_of_model_is_warned_of(
    infer_cli: InferCli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    of_encoder: bool,
    with_encoder: bool,
) -> None:
    """The default label sentence is not in its file, which a language model would also read."""
    monkeypatch.setattr(REGISTRY, "_registered", {})
    for name, encodes in (("encoder", of_encoder), ("given", with_encoder)):
        labels = None if encodes else {"rain": {"rain": 0.9, "sun": 0.1}}
        core.register(FakeBackend(name=name, labels=labels, encoder=encodes))
    models = [str(write_model(tmp_path / name)) for name in ("own", "other")]
    core_tasks.Task("{text}", ("rain", "sun"), model=models[0]).save(tmp_path / "task.toml")
    task = ("--task", tmp_path / "task.toml")
    done = infer_cli("classify", *task, "-m", models[1], "--backend", "given", "rain")
    assert done.exit_code == 0, done.output
    kind = "an encoder" if with_encoder else "a language model"
    warning = f"Warning: the task was made for the model {models[0]}, but this one is {kind}"
    assert (warning in done.stderr) == (of_encoder != with_encoder)


def test_a_resumed_job_names_the_label_sentence_that_changed(
    encode: Run, rows: Path, tmp_path: Path
) -> None:
    job = ("classify", *LABELS, "-i", rows, "-o", tmp_path / "out.jsonl", "--label-sentence")
    assert encode(*job, "On {label}").exit_code == 0
    done = encode(*job, "Of {label}", "--resume")
    assert done.exit_code == 2
    assert "from label_sentence 'On {label}' to label_sentence 'Of {label}'" in done.stderr
