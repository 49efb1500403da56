"""README.md: one page whose code runs and prints what it shows, with figures of other pages."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import core
from core.registry import REGISTRY

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"```(\w*)\n(.*?)```", README, flags=re.DOTALL)
FOR_USERS = next(n for n, (_, text) in enumerate(BLOCKS) if "load_model" in text)
COMMANDS = next(text for _, text in BLOCKS if text.startswith("infer-cli"))
LINKS = re.findall(r"\]\((?!https?:)([^)#]+)#?([^)]*)\)", README)


def python_block(containing: str) -> str:
    [block] = [text for kind, text in BLOCKS if kind == "python" and containing in text]
    return block


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the backends that a test registers."""
    monkeypatch.setattr(REGISTRY, "_registered", {})


def test_it_is_one_page() -> None:
    assert len(README.split()) < 700


def test_the_code_for_users_prints_what_it_shows(
    smollm2_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (kind, code), (_, output), (next_kind, more_code), (_, more_output) = BLOCKS[FOR_USERS:][:4]
    assert kind == next_kind == "python"
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    assert capsys.readouterr().out == output
    exec(more_code, namespace)
    assert capsys.readouterr().out == more_output.rstrip("\n")  # the answer ends without one


@pytest.fixture
def commands(smollm2_dir: Path) -> dict[str, list[str]]:
    """The command lines that it shows, by their first word after ``infer-cli``."""
    lines = [shlex.split(line) for line in COMMANDS.splitlines()]
    return {line[1]: [sys.executable, "-m", "core", *line[1:]] for line in lines}


def run(command: list[str], folder: Path, stdin: str = "") -> str:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    finished = subprocess.run(
        command, cwd=folder, env=environment, input=stdin, capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_its_commands_run(commands: dict[str, list[str]], tmp_path: Path) -> None:
    assert set(commands) == {"discover", "classify", "chat", "serve"}
    assert "smollm2-135m-instruct" in run(commands["discover"], tmp_path)
    (tmp_path / "news.csv").write_text("text\nThe striker scored twice.\n")
    run(commands["classify"], tmp_path)
    assert ",sports," in (tmp_path / "labelled.csv").read_text()
    answer = run(commands["chat"], tmp_path, "What is the capital of France?")
    assert "Paris" in answer


def test_its_server_listens(commands: dict[str, list[str]]) -> None:
    command = [*commands["serve"], "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        assert any("http://127.0.0.1:" in line for line in lines)
        server.terminate()


def test_the_backend_that_it_shows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {}
    exec(python_block("class EchoBackend"), namespace)
    [printed] = re.findall(r"This prints `(\w)`", README)
    assert capsys.readouterr().out == f"{printed}\n"
    with (
        core.load_model("echo://any", backend="echo") as model,
        pytest.raises(core.UnsupportedOptionError, match="temperature"),
    ):
        model.classify(["a"], temperature=1.0)


def test_the_template_that_it_links_runs(public_dir: Path) -> None:
    assert "(examples/template_backend.py)" in README
    (public_dir / "config.json").write_text('{"model_type": "template"}')
    template = runpy.run_path(str(ROOT / "examples" / "template_backend.py"))
    core.register(template["Template"]())
    with core.load_model(public_dir, backend="template") as model:
        token = model.classify(["zzz, zzz"])[0].token
        assert token is not None
        assert token.text == "z"
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


def reasons() -> Iterator[tuple[str, str]]:
    """The points of "Why": the text of each, and the page that it links."""
    section = README.partition("## Why\n")[2].partition("\n## ")[0]
    for point in section.split("\n- ")[1:]:
        match = re.fullmatch(r"(.*)\(\[[\w ]+\]\(([\w/.]+)[^)]*\)\)\.\s*", point, re.DOTALL)
        assert match is not None, point
        yield match[1], match[2]


def test_each_reason_has_figures_of_the_page_that_it_links() -> None:
    pairs = list(reasons())
    assert len(pairs) == 5
    for text, page in pairs:
        figures = re.findall(r"(?<![-\w])\d+(?:\.\d+)?", text)
        linked = (ROOT / page).read_text("utf-8")
        assert figures, text
        for figure in figures:
            assert re.search(rf"(?<![\d.]){re.escape(figure)}(?!\d)", linked), f"{page}: {figure}"


def test_every_link_and_make_target_exists() -> None:
    assert len(LINKS) > 20
    for target, _ in LINKS:
        assert (ROOT / target).exists(), target
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make (\w+)`?", README):
        assert f"\n{target}:" in makefile, target


def test_brackets_are_quoted_for_zsh() -> None:
    for page in (README, (ROOT / "docs" / "install.md").read_text("utf-8")):
        for line in page.splitlines():
            if line.startswith("pip install") and "[" in line:
                assert re.search(r"'[^']*\[[^']*'", line), line
