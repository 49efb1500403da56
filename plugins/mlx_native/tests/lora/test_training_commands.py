"""``infer-cli lora train`` and ``lora eval`` as the hook adds them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import core
from core_mlx_native import hooks
from core_mlx_native.progress import TrainingProgress, progress_bar
from core_mlx_native.train import curve
from core_mlx_native.training_commands import config_fields
from plugins.mlx_native.tests.train.tasks import labelled
from runtime.tests.tiny import Checkpoint

SHORT = ("--rank", 4, "--scale", 4, "--learning-rate", 2e-2, "--steps", 16, "--batch-size", 8)


@pytest.fixture
def cli() -> click.Group:
    group = click.Group()
    hooks.core_register_commands(group)
    return group


def invoked(cli: click.Group, *words: object) -> Result:
    return CliRunner().invoke(cli, ["lora", *map(str, words)], catch_exceptions=False)


def run(cli: click.Group, *words: object) -> str:
    done = invoked(cli, *words)
    assert done.exit_code == 0, done.output
    return done.stdout


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(first: int = 0, count: int = 12) -> list[dict[str, Any]]:
    some = labelled(count)[first:]
    return [{"text": example.text, "label": example.label} for example in some]


def test_train_and_eval_of_labels(checkpoint: Checkpoint, tmp_path: Path, cli: click.Group) -> None:
    model, out = checkpoint("gemma3", max_position_embeddings=512), tmp_path / "out"
    data = jsonl(tmp_path / "rows.jsonl", rows())
    asked = ("-m", model, "--backend", "mlx_cpu", "-i", data, "--template", r"{text}\n:")
    done = invoked(
        cli, "train", *asked, *SHORT, "--hold-out", 0.25, "--validation", data,
        "--validate-every", 8, "--save-every", 8, "--betas", "0.9,0.99",
        "--targets", "q_proj,v_proj", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    shown, warned = done.stdout, done.stderr
    assert shown.endswith(f"{out}\n")
    assert "6 of 6 test rows have texts that are also used for validation" in warned
    assert "used for training" not in warned
    assert "before: " in shown
    assert "after: 6 of 6 correct, 100.0%" in shown
    assert "after, temperature fitted on validation: " in shown
    assert "gold" in shown, "the confusion matrix"
    names = {"adapters.safetensors", "adapter_config.json", "losses.svg", "report.json"}
    checkpoints = {"checkpoint-0000008.safetensors", "checkpoint-0000016.safetensors"}
    assert {path.name for path in out.iterdir()} == names | checkpoints

    report = json.loads((out / "report.json").read_text())
    assert report["after"]["raw"]["accuracy"] == 1.0 > report["before"]["raw"]["accuracy"]
    assert report["after"]["calibrated"]["calibration_error"] >= 0
    noted = json.loads((out / "adapter_config.json").read_text())["core_training"]
    assert noted["template"] == "{text}\n:"
    assert noted["labels"] == ["ab", "no"]

    # The template and the labels are those that were learned.
    found = run(
        cli, "eval", "-m", model, "--backend", "mlx_cpu", "--adapter", out, "-i", data, "--json"
    )
    figures = json.loads(found)
    assert figures["with adapter"]["raw"]["accuracy"] == 1.0
    assert figures["without adapter"]["raw"]["accuracy"] < 1.0
    assert "with adapter: 24 of 24 correct" in run(
        cli, "eval", "-m", model, "--backend", "mlx_cpu", "--adapter", out, "-i", data
    )


def test_train_goes_on(checkpoint: Checkpoint, tmp_path: Path, cli: click.Group) -> None:
    model, out = checkpoint("gemma3"), tmp_path / "out"
    data = jsonl(tmp_path / "train.jsonl", rows())
    asked = ("-m", model, "--backend", "mlx_cpu", "-i", tmp_path, *SHORT, "--save-every", 2, out)
    run(cli, "train", *asked, "--steps", 4)
    with pytest.raises(core.OutputError, match=r"already contains adapter_config\.json"):
        invoked(cli, "train", *asked)
    run(cli, "train", *asked, "--steps", 6, "--resume")
    assert data.exists()
    assert (out / "checkpoint-0000006.safetensors").exists()


@pytest.mark.parametrize(
    "name", ["adapters.safetensors", "adapter_config.json", "report.json", "losses.svg"]
)
@pytest.mark.parametrize("more", [(), ("--resume",)])
def test_what_others_wrote_into_the_directory_stays(
    tmp_path: Path, cli: click.Group, name: str, more: tuple[str, ...]
) -> None:
    jsonl(tmp_path / "train.jsonl", rows())
    mine = tmp_path / "out" / name
    mine.parent.mkdir()
    mine.write_text("an adapter that took a week")
    with pytest.raises(core.OutputError):
        invoked(cli, "train", "-m", tmp_path, "-i", tmp_path, *SHORT, *more, mine.parent)
    assert mine.read_text() == "an adapter that took a week"


def test_texts_and_completions_have_a_loss_of_each_token(
    checkpoint: Checkpoint, tmp_path: Path, cli: click.Group
) -> None:
    model, out = checkpoint("gemma3"), tmp_path / "out"
    data = jsonl(
        tmp_path / "rows.jsonl",
        [{"prompt": "ab no", "completion": " abc no"}, {"text": "a b a b a b"}],
    )
    run(cli, "train", "-m", model, "--backend", "mlx_cpu", "-i", data, *SHORT, out)
    asked = ("eval", "-m", model, "--backend", "mlx_cpu", "--adapter", out, "-i", data)
    figures = json.loads(run(cli, *asked, "--json"))
    assert figures["with adapter"]["loss"] < figures["without adapter"]["loss"]
    assert figures["with adapter"]["tokens"] == figures["without adapter"]["tokens"] > 5
    assert "perplexity" in run(cli, *asked)


def test_what_is_wrong_is_told_before_anything_is_loaded(tmp_path: Path, cli: click.Group) -> None:
    data = jsonl(tmp_path / "rows.jsonl", [{"text": "a", "label": "b"}])
    asked = ("-m", "nowhere", "-i", data, tmp_path / "out")
    for words, message in (
        (("--rank", 0), "rank=0 is not valid"),
        (("--schedule", "linear"), "schedule='linear' is not valid"),
        (("--betas", "1"), "betas"),
        (("--resume", "--hold-out", 0.5), "leaves none to train on"),
        ((), "All examples have the label 'b'"),
    ):
        with pytest.raises(core.CoreError, match=message):
            invoked(cli, "train", *words, *asked)
    assert invoked(cli, "train", "--betas", "a,b", *asked).exit_code == 2


def test_a_backend_that_does_not_train_is_named(
    checkpoint: Checkpoint, tmp_path: Path, cli: click.Group
) -> None:
    data = jsonl(tmp_path / "rows.jsonl", rows())
    with pytest.raises(core.UnsupportedOperationError, match=r"mlx_lm.*metal"):
        invoked(
            cli, "train", "-m", checkpoint(), "--backend", "mlx_lm", "-i", data, tmp_path / "out"
        )


def test_flags_are_fields_of_the_configuration() -> None:
    fields = core.TrainConfig.__dataclass_fields__.keys()
    assert set(config_fields()) < fields
    others = {"labels", "template", "label_prefix", "targets", "betas", "mask_prompt", "validation"}
    assert fields - set(config_fields()) == others | {"directory"}, "each has a flag"


def test_progress_tells_loss_speed_time_and_memory() -> None:
    shown = io.StringIO()
    with TrainingProgress(shown) as progress:
        for number in range(1, 4):
            progress.show(
                core.TrainStep(
                    number, 2.0, 50, 0.5, steps=3, peak_memory_bytes=1_500_000_000,
                    validation_loss=1.5 if number == 3 else None,
                )
            )  # fmt: skip
    first, last = shown.getvalue().splitlines()
    assert first == "step 1/3  loss 2.0000  100 tokens/s  0:01 left  1.50 GB"
    assert last.rstrip().endswith(
        "step 3/3  loss 2.0000  100 tokens/s  0:00 left  1.50 GB  validation 1.5000"
    )


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_dumb_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    shown = _Terminal()
    with TrainingProgress(shown) as progress:
        progress.show(core.TrainStep(1, 2.0, 50, 0.5, steps=3))
    assert shown.getvalue() == "step 1/3  loss 2.0000  100 tokens/s  0:01 left\n"


def test_progress_without_a_terminal_prints_no_empty_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As rich before 14.3 has it.
    monkeypatch.setattr("rich.progress.Progress.stop", lambda bar: bar.console.print())
    shown = io.StringIO()
    with TrainingProgress(shown):
        pass
    with progress_bar("convert") as show:
        show(1, 2)
    assert (shown.getvalue(), capsys.readouterr().err) == ("", "")


def test_a_bar_shows_counts_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, lines = 5.0, list[str]()
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(
        "rich.progress.Progress.update", lambda *_, description, **__: lines.append(description)
    )
    with progress_bar("judging") as show:
        now = 65.0
        show(0, 40)
        now += 3
        show(8, 40)
    assert lines == ["judging  0/40", "judging  8/40  0:12 left"]


def test_the_curve_is_drawn_of_any_number_of_steps() -> None:
    for count in (0, 1, 2, 5000):
        losses = [(step, 5.0 / step) for step in range(1, count + 1)]
        drawn = curve.svg(losses, losses[::7])
        assert drawn.startswith("<svg")
        assert len(drawn) < 100_000
    assert "polyline" in curve.svg([(1, 2.0), (2, 1.0)])
