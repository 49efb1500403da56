"""A row of a CSV file passes few files: those entered before the model is asked."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import pytest
from click.testing import CliRunner

import core
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model
from core_cli.app import build

MOST = 40


class Entered:
    """A profile function that lists the modules entered until the model classifies."""

    def __init__(self) -> None:
        self.modules: list[str] = []
        self.is_asked = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        module = str(frame.f_globals.get("__name__"))
        ours = module.partition(".")[0].startswith("core") and "<" not in frame.f_code.co_filename
        if self.is_asked or event != "call" or not ours:
            return
        if module.startswith("core.testing"):
            self.is_asked = frame.f_code.co_name == "do_classify"
        elif module not in self.modules:
            self.modules.append(module)


def test_a_csv_row_enters_few_files_before_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REGISTRY, "_registered", {})  # without "near" after this test
    rows = tmp_path / "in.csv"
    rows.write_text("id,text\n1,hello there\n2,bye now\n")
    model = write_model(tmp_path / "model")
    core.register(
        FakeBackend(labels=lambda prompt, labels: dict.fromkeys(labels, 0.5), name="near")
    )
    infer_cli, runner = build(), CliRunner()
    command = ["classify", "-m", model, "--backend", "near", "--labels", "a,b", "-i", rows]
    first, second = ([*map(str, [*command, "-o", tmp_path / name])] for name in ("1.csv", "2.csv"))

    done = runner.invoke(infer_cli, first)  # everything is imported now
    assert done.exit_code == 0, done.output
    entered = Entered()
    sys.setprofile(entered)
    try:
        runner.invoke(infer_cli, second)
    finally:
        sys.setprofile(None)
    assert entered.is_asked
    assert len(entered.modules) <= MOST, entered.modules
