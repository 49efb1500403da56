"""How labels are joined to prompts is shown, and named where it makes them unlikely."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import LabelError
from core.options import GenerateConfig
from core.types import ClassifyResult
from core_cli.rows.joining import advice, joined

if TYPE_CHECKING:
    from click.testing import Result

    from cli.tests.conftest import InferCli

Run = Callable[..., "Result"]


@pytest.fixture
def run(infer_cli: InferCli, fake_model: Path) -> Run:
    """``classify`` with the fake model."""

    def call(*flags: str | Path) -> Result:
        return infer_cli("classify", "-m", fake_model, "--backend", "fake", *flags)

    return call


def config(*labels: str, prefix: str = " ") -> GenerateConfig:
    """Labels and their prefix."""
    return GenerateConfig(labels=labels, label_prefix=prefix)


@pytest.mark.parametrize(
    ("prompt", "asked", "line"),
    [
        ("It is", config("a", "b"), "labels are joined with a space: 'It is a'"),
        (
            'It is "',
            config("a"),
            "labels are joined without a space, because the prompt ends in an opening quote: "
            "'It is \"a'",
        ),
        (
            "It is\n",
            config("a"),
            "labels are joined without a space, because the prompt ends in white space: "
            "'It is\\na'",
        ),
        (
            "It is",
            config("a", prefix=""),
            "labels are joined without a space, because the label prefix is empty: 'It isa'",
        ),
        ("It is", config("a", prefix="\n"), "labels are joined with '\\n': 'It is\\na'"),
        ('It is "', config("a", prefix=" :"), "labels are joined with ' :': 'It is \" :a'"),
        (
            "It is",
            config(" a"),
            "labels are joined with their own leading white space: 'It is a'",
        ),
        ("x" * 30, config("a"), f"labels are joined with a space: '…{'x' * 24} a'"),
    ],
)
def test_a_line_says_how_and_why(prompt: str, asked: GenerateConfig, line: str) -> None:
    assert joined(prompt, asked) == line


def test_a_shown_prompt_says_it(run: Run) -> None:
    quoting = ("rain", "--template", 'text: "{text}", topic: "', "--labels", "a,b")
    assert "labels are joined" not in run(*quoting).output
    shown = run(*quoting, "--show-prompt")
    assert shown.stdout == 'text: "rain", topic: "\n'
    assert (
        'because the prompt ends in an opening quote: \'text: "rain", topic: "a\'' in shown.stderr
    )
    shown = run("rain", "--template", "{text} is", "--labels", "a,b", "--show-prompt")
    assert "labels are joined with a space: 'rain is a'" in shown.stderr
    assert "labels are joined" not in run("rain", "--show-prompt").stderr  # there are none


def test_a_task_that_is_shown_says_it(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "task.toml"
    file.write_text('format = 1\ntemplate = "{text} is"\nlabels = ["a", "b"]\nlabel_prefix = ""\n')
    shown = run("rain", "--task", file, "--show-prompt")
    assert "labels are joined without a space, because the label prefix is empty: 'rain isa'" in (
        shown.stderr
    )


# ------------------------------------------------------------------ the other way


class Opinionated:
    """A model whose labels are likely in one way alone, and which counts what it is asked."""

    def __init__(self, spaced: bool, alike: bool = False) -> None:
        self.spaced, self.alike, self.asked = spaced, alike, 0

    def classify(self, prompts: Sequence[str], config: GenerateConfig) -> list[ClassifyResult]:
        assert config.label_prefix == ""
        self.asked += len(prompts)
        if self.alike and len({label.strip() for label in config.labels}) < len(config.labels):
            raise LabelError("alike")
        likely = config.labels[0].startswith(" ") is self.spaced
        return [ClassifyResult(label_mass=0.01 if likely else 1e-7) for _ in prompts]


def said(spaced: bool, prompts: list[str], asked: GenerateConfig, **options: Any) -> str | None:
    """The advice of a model whose labels are likely with a space, or without one."""
    return advice(Opinionated(spaced, **options), prompts, asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spaced", "prompt", "asked", "line"),
    [
        (
            False,
            "It is",
            config("a", "b"),
            "Joined without a space, they are 1e+05 times as likely: set the label prefix to '' "
            "(--label-prefix, or in the task file).",
        ),
        (
            True,
            "It is",
            config("a", "b", prefix=""),
            "Joined with a space, they are 1e+05 times as likely: set the label prefix to ' ' "
            "(--label-prefix, or in the task file).",
        ),
        (
            True,
            "It is (",
            config("a", "b"),
            "Joined with a space, they are 1e+05 times as likely: end the prompt with one.",
        ),
        (
            False,
            "It is",
            config(" a", " b"),
            "Joined without a space, they are 1e+05 times as likely: remove the space at the "
            "start of the labels.",
        ),
        (True, "It is", config("a", "b"), None),
        (False, "It is (", config("a", "b"), None),
        (False, "It is ", config("a", "b"), None),  # there is no other way
        (False, "It is", config("a", "b", prefix=": "), None),
    ],
)
def test_the_other_way_is_told_where_it_is_the_cause(
    spaced: bool, prompt: str, asked: GenerateConfig, line: str | None
) -> None:
    assert said(spaced, [prompt, prompt], asked) == line


def test_labels_that_are_alike_the_other_way_are_not_advised() -> None:
    assert said(False, ["It is"], config(" a", "  a"), alike=True) is None


def test_rows_that_are_joined_otherwise_are_left_out() -> None:
    model = Opinionated(spaced=False)
    line = advice(model, ["It is", "It is (", "It is ", "So is"], config("a", "b"))  # type: ignore[arg-type]
    assert line is not None
    assert model.asked == 2 * 2


def test_a_note_names_the_joining(
    infer_cli: InferCli, smollm2_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A real model, which expects a space there."""
    rows = tmp_path / "rows.txt"
    rows.write_text("The striker scored twice.\nThe bank raised its rates.\n" * 6)
    flags = ("--backend", "mlx_cpu", "--labels", "sports,finance", "-i", rows)
    asked = ("classify", "-m", smollm2_dir, *flags, "--template", "{text} This news is about")
    done = infer_cli(*asked, "--label-prefix", "", "--json")
    assert done.exit_code == 0, done.stderr
    assert "in 12 rows no label is a likely continuation" in done.stderr
    assert "times as likely: set the label prefix to ' '" in done.stderr
    assert "Reword the prompt" not in done.stderr
    assert not caplog.records  # the model's own warning would say the same
    assert "likely continuation" not in infer_cli(*asked, "--json").stderr

    # A prompt that leads nowhere is not mended by another joining.
    lost = (*asked[:-1], "{text} It happened in the year")
    done = infer_cli(*lost, "--json")
    assert "Reword the prompt" in done.stderr
