"""The example that generates without the runtime: certified, short, and found by its own format."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import core
from core.registry import REGISTRY

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "markov_backend.py"
GUIDE = (ROOT / "docs" / "write_a_backend.md").read_text("utf-8")
# Its paragraphs begin as the suite's prompts do, and in other scripts.
TEXT = """
The capital of France is Paris, and the capital of Italy is Rome. The capital of Spain is Madrid.

Once upon a time there was a king who had three daughters, and a miller who had but his mill.

Dear Sir or Madam, I have read your letter of the first of May, and I thank you for it.

She opened the door and looked into the garden. She opened the window and called for the dog.

The weather today is fine, and the weather tomorrow will be good as well.

1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20

for i in range(10): print(i)

Привет, как дела? Всё хорошо, спасибо.

日本語の文章を書きます。今日は天気がいいです。

🎉🎊🥳🎉🎊🥳🎉🎊🥳
"""


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, found as if it were installed."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    return importlib.import_module(EXAMPLE.stem)


@pytest.fixture
def path(example: ModuleType, tmp_path: Path) -> Path:
    """A model of a text."""
    example.make_model(TEXT, tmp_path / "tales.markov")
    return tmp_path / "tales.markov"


@pytest.fixture
def registered(example: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend, beside those that are installed."""
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered})
    core.register(example.Markov())


def test_it_is_certified_with_all_that_it_declares(
    certify: Callable[..., set[str]],
    example: ModuleType,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [point] = re.findall(r"`(markov = \"[\w.:]+\")`", GUIDE)
    installed = tmp_path / "site" / "core_markov-0.1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: core-markov\nVersion: 1\n")
    (installed / "entry_points.txt").write_text(f"[core.backends]\n{point.replace(chr(34), '')}\n")
    folders = (installed.parent, EXAMPLE.parent, *filter(None, [os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, folders)))
    assert certify("markov", path) == {each.value for each in example.Markov.capabilities}


def test_it_is_short_and_stands_on_core_alone() -> None:
    text = EXAMPLE.read_text("utf-8")
    assert len(text.splitlines()) < 200
    assert "core_" not in text


def test_the_code_that_the_guide_shows_is_its_code() -> None:
    indented = re.findall(r"\n\n((?:(?: {4}.*)?\n)+)", GUIDE)
    shown = [text for text in indented if "describe_model" in text]
    assert len(shown) == 1
    assert shown[0].strip("\n") in EXAMPLE.read_text("utf-8")


@pytest.mark.usefixtures("registered")
def test_a_model_is_found_and_runs_by_default(path: Path) -> None:
    (found,) = core.discover(path.parent)
    assert (found.path, found.format, found.model_type, found.problem) == (
        *(str(path), "markov", "markov"),
        "",
    )
    with core.load_model(path) as model:
        assert model.generate("Once upon a", max_tokens=60).text().startswith(" time")
        stream = model.generate("for i in range(10): print(i", max_tokens=60)
        assert (stream.text(), stream.finish_reason) == (")", "stop")
        seeded = [model.generate("The", temperature=1.0, seed=3).text() for _ in range(2)]
        assert seeded[0] == seeded[1]
        token = next(model.generate("The capital of Fra", return_logprobs=True))
        assert token.text == "n"
        assert token.logprob is not None
        assert -0.5 < token.logprob < 0.0
        with pytest.raises(core.UnsupportedOptionError, match="top_k"):
            model.generate("The", top_k=3)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "broken header"),
        (b"markov 2 4 3\nabc", "broken header"),
        (b"markov 1 4 300\nabc", "truncated (18 of 315 B)"),
    ],
)
@pytest.mark.usefixtures("registered")
def test_a_damaged_model_is_listed_with_its_problem(path: Path, data: bytes, problem: str) -> None:
    path.write_bytes(data)
    (found,) = core.discover(path.parent)
    assert found.problem == problem
    for options in ({}, {"backend": "markov"}):
        with pytest.raises(core.InvalidModelError):
            core.load_model(path, **options)  # type: ignore[arg-type]


def test_it_makes_a_model_from_the_command_line(
    example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text(TEXT, "utf-8")
    monkeypatch.setattr("sys.argv", [str(EXAMPLE), str(tmp_path / "text"), str(tmp_path / "m")])
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(EXAMPLE.read_text("utf-8"), str(EXAMPLE), "exec"), namespace)
    assert example.header_of(str(tmp_path / "m"))[0] == 4
