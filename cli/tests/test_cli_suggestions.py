"""Every command line that an output suggests runs as it stands; FILE stands for other rows."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest

from core_cli.app import build

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

Suggested = Callable[..., list[list[str]]]
READ = ("--encoding", "cp1252", "--text-field", "body", "--allow-blank")


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Rows whose names and fields need quotes and flags."""
    file = tmp_path / "my rows.csv"
    lines = [f"{'a ' * (1 + n % 3)}{'b ' * (n % 4)}ü,{'ab'[n % 2]}\n" for n in range(60)]
    file.write_bytes(("body,kind\n" + "".join(lines)).encode("cp1252"))
    return file


@pytest.fixture
def suggested(
    infer_cli: InferCli,
    fake_model: Path,
    rows: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Suggested:
    """Runs a command, then each line that it suggests; the arguments of these."""

    def run(*arguments: str | Path) -> list[list[str]]:
        monkeypatch.chdir(tmp_path)  # some names of files to write are relative
        done: Any = infer_cli(
            *arguments, "-i", rows, "-m", fake_model, *READ, "--context-len", "512"
        )
        assert done.exit_code == 0, done.output
        lines = [line for line in done.stderr.splitlines() if line.startswith("infer-cli ")]
        commands = [
            shlex.split(line.replace("-i FILE", f"-i {shlex.quote(str(rows))}"))[1:]
            for line in lines
        ]
        for command in commands:
            if command[0] == "lora":  # the fake backend does not train
                _parse(command)
                continue
            again = infer_cli(*command)
            assert again.exit_code == 0, (command, again.output)
            if command[0] == "discover":
                continue
            for flags in (READ[:2], READ[2:4], READ[4:], ("--context-len", "512")):
                assert set(flags) <= set(command)
        return commands

    return run


def _parse(command: list[str]) -> None:
    """Let click read a command of the group ``lora``, without running it."""
    group = build().commands["lora"]
    assert isinstance(group, click.Group)
    group.commands[command[1]].make_context(command[1], command[2:])


def test_those_of_tune(suggested: Suggested) -> None:
    asked = ("--template", "b b {text} is", "--gold", "kind", "--limit", "50")
    commands = suggested("tune", *asked, "--level", "raw", "--level", "L2", "-o", "my task.toml")
    assert [command[0] for command in commands] == ["discover", "lora", "classify"]
    assert commands[-1][commands[-1].index("--task") + 1] == "my task.toml"


def test_that_of_calibrate(suggested: Suggested, tmp_path: Path) -> None:
    asked = ("--template", "b b {text} is", "--labels", "a,b")
    (command,) = suggested("calibrate", *asked, "-o", tmp_path / "task.toml")
    assert command[0] == "classify"


def test_that_of_learn(suggested: Suggested, tmp_path: Path) -> None:
    commands = suggested("learn", "--gold", "kind", "-o", tmp_path / "my head.safetensors")
    assert [command[0] for command in commands] == ["discover", "lora", "classify"]
    assert commands[-1][commands[-1].index("--head") + 1].endswith("my head.safetensors")


@pytest.mark.parametrize("command", ["calibrate", "classify"])
def test_those_if_guessing_is_as_good(suggested: Suggested, command: str) -> None:
    asked = ("--template", "b b b b b {text} is", "--gold", "kind", "-o", "my task.toml.csv")
    commands = suggested(command, *asked)
    names = [command[0] for command in commands if command[0] not in ("calibrate", "classify")]
    assert names == ["learn", "discover", "lora"]
    train = next(line for line in commands if line[0] == "lora")
    assert train[train.index("--gold") + 1] == "kind"
    assert train[train.index("--text-field") + 1] == "body"
