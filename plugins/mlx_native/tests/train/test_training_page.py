"""docs/train.md: its snippet runs, its commands and options are there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

import core
from core_mlx_native import hooks
from runtime.tests.tiny import Checkpoint

PAGE = (Path(__file__).parents[4] / "docs" / "train.md").read_text("utf-8")
SNIPPETS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_snippet_runs(
    checkpoint: Checkpoint, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = checkpoint("gemma3")
    names: dict[str, object] = {"model_dir": directory, "out_dir": tmp_path / "out"}
    [snippet] = SNIPPETS
    exec(compile(snippet, "docs/train.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:20]] == [str(step) for step in range(1, 21)]
    assert printed[20:] == ["ab"]
    core.load_model(directory, backend="mlx_cpu", adapter_path=str(tmp_path / "out")).close()


def test_its_commands_and_options_are_there() -> None:
    group = click.Group()
    hooks.core_register_commands(group)
    lora = group.commands["lora"]
    assert isinstance(lora, click.Group)
    commands = re.findall(r"^infer-cli lora (\w+) (.*)$", PAGE, flags=re.MULTILINE)
    assert len(commands) == 2
    for name, words in commands:
        known = {flag for option in lora.commands[name].params for flag in option.opts}
        flags = re.findall(r"(?<= )--?[a-z-]+", " " + words)
        assert flags
        assert set(flags) <= known

    table = PAGE.partition("## Options")[2].partition("## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    options = {option for row in rows for option in re.findall(r"`(\w+)`", row)}
    assert len(options) > 25
    assert options <= core.TrainConfig.__dataclass_fields__.keys()
