"""What the README shows is what there is: its code runs, its files and targets exist."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import core
from benchmarks import machine
from benchmarks.classify_parts import report
from benchmarks.classify_parts.contestants import OURS, PEERS
from benchmarks.classify_parts.measuring import Result
from core.registry import REGISTRY

ROOT = Path(__file__).parent.parent
# Those that keep the instruction between calls, and llama.cpp's faster files.
OTHER_PEERS = (
    "mlx_lm prefix cached",
    "transformers",
    "llama_cpp loop",
    "llama_cpp loop Q8_0",
    "llama_cpp loop Q4_0",
)
README = (ROOT / "README.md").read_text()
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)


def python_block(containing: str) -> str:
    [block] = [text for kind, text in BLOCKS if kind == "python" and containing in text]
    return block


def test_the_backend_it_shows_is_the_one_in_examples() -> None:
    shown = python_block("class Template")
    assert shown == (ROOT / "examples" / "template_backend.py").read_text()


def test_the_backend_it_shows_runs(
    public_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REGISTRY, "_registered", {})  # taken out again behind this test
    (public_dir / "config.json").write_text('{"model_type": "template"}')
    namespace: dict[str, Any] = {"path": public_dir}
    exec(python_block("class Template"), namespace)
    exec(python_block("core.register(Template())"), namespace)
    assert capsys.readouterr().out == "z\n"
    with core.load_model(public_dir, backend="template") as model:
        assert isinstance(model.classify([""])[0].error, core.EmptyPromptError)
        cancel = threading.Event()
        cancel.set()
        assert isinstance(model.classify(["a"], cancel=cancel)[0].error, core.GenerationCancelled)
        with pytest.raises(core.UnsupportedOptionError, match="temperature"):
            model.classify(["a"], temperature=1.0)
        with pytest.raises(core.UnsupportedOperationError, match="generate"):
            model.generate("a")
    with pytest.raises(core.ModelClosedError):
        model.classify(["a"])


def test_the_code_for_users_runs(smollm2_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["The central bank raised interest rates again.", "The striker scored twice."]
    exec(python_block("core.load_model(path)"), {"path": smollm2_dir, "texts": texts})
    first, second, *raw = capsys.readouterr().out.splitlines()
    assert (first.split()[0], first.split()[-1]) == ("finance", "L0")
    assert (second.split()[0], second.split()[-1]) == ("sports", "L0")
    assert [line.split()[0] for line in raw] == ["finance", "sports"]


def test_the_speeds_it_shows_are_the_recorded_ones() -> None:
    """``python -m benchmarks.classify_parts.report`` prints the table of such a file."""
    written = json.loads((ROOT / "benchmarks" / "results" / "classify.json").read_text())
    results = [Result(**row) for row in written["results"]]
    peers = [peer for peer in PEERS if any(row.contestant == peer for row in results)]
    assert report.markdown(results, OURS, peers) in README
    assert machine.caption(written["machine"]) in README


def test_so_are_those_of_calls_as_users_make_them() -> None:
    written = json.loads((ROOT / "benchmarks" / "results" / "classify_repeated.json").read_text())
    results = [Result(**row) for row in written["results"]]
    assert report.markdown(results, OURS, OTHER_PEERS) in README
    assert machine.caption(written["machine"]) in README


def test_every_link_and_make_target_exists() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make (\w+)`?", README):
        assert f"\n{target}:" in makefile, target


def test_brackets_are_quoted_for_zsh() -> None:
    for line in README.splitlines():
        if line.startswith("pip install") and "[" in line:
            assert re.search(r"'[^']*\[[^']*'", line), line
