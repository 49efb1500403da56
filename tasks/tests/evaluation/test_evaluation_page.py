"""docs/eval.md: its snippets run, and it names every field and flag that there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from core_cli.commands.evaluate import evaluate
from core_tasks.evaluation.items import ANSWERS, CHOICES, QUESTIONS

PAGE = (Path(__file__).parents[3] / "docs" / "eval.md").read_text(encoding="utf-8")


def test_the_snippets_run(scorer: Any) -> None:
    code = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)
    assert code
    model = scorer(lambda prompt, end: -1.0 if end.strip() == "oak" else -2.0)
    names: dict[str, Any] = {"model": model}
    for snippet in code:
        exec(compile(snippet, "docs/eval.md", "exec"), names)  # the page's own code
    assert names["evaluation"].accuracy == 0.5


def test_every_flag_of_its_own_is_told() -> None:
    flags = (opts for p in evaluate.params for opts in (p.opts, p.secondary_opts))
    known = {flag for opts in flags for flag in opts}
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE))
    assert mentioned <= known
    assert {name for name in (*QUESTIONS, *ANSWERS, *CHOICES) if f"`{name}`" not in PAGE} == set()
