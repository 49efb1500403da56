"""docs/agreement.md: its code runs, and it names every key of a report."""

from __future__ import annotations

import re
from pathlib import Path

from core_tasks.agreement import Agreement

PAGE = (Path(__file__).parents[3] / "docs" / "agreement.md").read_text(encoding="utf-8")


def test_its_code_runs() -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "docs/agreement.md", "exec"), names)
    report = names["report"]
    assert isinstance(report, dict)
    assert (report["rows"], report["right"]) == (3, 1)
    assert str(names["picture"]).startswith("<svg")


def test_it_names_every_key() -> None:
    table = "".join(line for line in PAGE.splitlines() if line.startswith("|"))
    assert set(Agreement().to_dict()) <= set(re.findall(r"`(\w+)`", table))
