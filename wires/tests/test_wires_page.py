"""docs/wires.md: its code runs, its prompt is the one that is made, and what it names is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from core.testing import FakeModel
from core_wires import batch, systemone
from core_wires.questions import DecisionRequest
from core_wires.reading import readings

PAGE = (Path(__file__).parents[2] / "docs" / "wires.md").read_text(encoding="utf-8")
BODY = {
    "model": "jev-latest",
    "state": "I was charged twice.",
    "questions": {
        "q": {
            "type": "choice",
            "instructions": "Which team should handle it?",
            "criteria": {"sales": None, "billing": None},
        }
    },
}


def test_its_code_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {"body": BODY}
    names["model"] = FakeModel(labels=lambda prompt, labels: "billing")
    exec(compile(code, "docs/wires.md", "exec"), names)
    reply = names["reply"]
    assert isinstance(reply, dict)
    assert reply["answers"]["q"]["choice"] == "billing"


def test_its_prompt_is_the_one_that_is_made() -> None:
    request = systemone.read(BODY)
    assert isinstance(request, DecisionRequest)
    [reading] = readings(request)
    assert f"```\n{reading.as_text()}\n```" in PAGE


def test_it_lists_the_endpoints_and_functions_that_there_are() -> None:
    assert set(re.findall(r"^\| `(/v1/[\w/]+)`", PAGE, flags=re.MULTILINE)) == set(batch.READERS)
    for module, name in re.findall(r"`([a-z]+)\.([a-z_]+)", PAGE):
        if module in ("batch", "generation", "completions", "decisions", "systemone"):
            assert hasattr(importlib.import_module(f"core_wires.{module}"), name), name
