"""docs/python.md: its snippets run, one behind another, and it names every option."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import core
from core.options import GenerateOptions, LoadOptions
from core.registry import REGISTRY
from core_conformance.reference import Reference, write_model

PAGE = (Path(__file__).parents[1] / "docs" / "python.md").read_text("utf-8")
SNIPPETS: list[str] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_snippets_run_and_print_what_they_say(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, "reference": Reference()})
    names: dict[str, object] = {"path": write_model(tmp_path / "model")}
    load = core.load_model
    monkeypatch.setattr(core, "load_model", lambda path: load(path, backend="reference"))
    caplog.set_level("WARNING", "core")  # a snippet sets it, and this restores it
    for snippet in SNIPPETS:
        exec(compile(snippet, "docs/python.md", "exec"), names)
    printed = capsys.readouterr().out
    for said in re.findall(r"  # (\[.*\])$", "".join(SNIPPETS), flags=re.MULTILINE):
        assert said in printed
    assert '"type": "EmptyPromptError"' in printed


@pytest.mark.parametrize("options", [GenerateOptions, LoadOptions])
def test_it_names_every_option(options: type) -> None:
    for name in options.__annotations__:
        assert re.search(rf"[`=(]?\b{name}\b", PAGE), name
