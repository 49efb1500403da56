"""docs/integrations.md: the snippets of LangChain run as they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from core.api import close_shared_models
from core.registry import REGISTRY
from core.testing import FakeBackend, write_model

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "integrations.md").read_text("utf-8")


def said(prompt: str, labels: Sequence[str]) -> Mapping[str, float]:
    return dict.fromkeys(labels, 1 / len(labels))


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    backend = FakeBackend("Rhine, Rhone, Po.", labels=said, name="metal")  # the first that is asked
    monkeypatch.setattr(REGISTRY, "_registered", {**REGISTRY._registered, "metal": backend})
    yield str(write_model(tmp_path / "model"))
    close_shared_models()


def test_the_snippets_run(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {"path": path}
    snippets = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(compile(snippet, "docs/integrations.md", "exec"), names)
    rivers, decided, many = capsys.readouterr().out.splitlines()
    assert rivers == "Rhine, Rhone, Po."
    assert decided == "Rhine, Rhone, Po.{'billing': 0.5, 'sales': 0.5} 0.5"  # a stream ends no line
    assert many == "2"
