"""Prompts and labels of an author's own, for a model of another language."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core_conformance.checking.material import Material, use
from core_conformance.reference import write_model
from core_conformance.running.known import UsageError
from core_conformance.running.settings import nearest_table

PROMPTS = [
    "Il était une fois",
    "La capitale est",
    "Un deux trois",
    "Madame,",
    "Elle ouvrit",
    "Le temps",
]
LABELS = ["bon", "mauvais", "neuf"]
ASKED = """
import json, sys
from core_conformance.running.run import Run
from core_conformance.running.settings import nearest_table
from pathlib import Path
run = Run(nearest_table(Path(sys.argv[1])))
from core_conformance.checks import batch, labels
from core_conformance.checking import ask, calls, recall
print(json.dumps([ask.PLAIN, ask.LABELS, batch._MIXED, calls.PROMPTS, recall._NOTE]))
"""


def write_table(folder: Path, **rows: object) -> Path:
    """A table with these rows, and a reference model beside it."""
    write_model(folder / "model")
    lines = "".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in rows.items()
    )
    table = f'[tool.core-conformance]\nbackend = "reference"\nmodel = "model"\n{lines}'
    (folder / "pyproject.toml").write_text(table, encoding="utf-8")
    return folder


def test_the_checks_ask_with_them(tmp_path: Path) -> None:
    folder = write_table(tmp_path, prompts=PROMPTS, labels=LABELS)
    done = subprocess.run(
        [sys.executable, "-c", ASKED, str(folder)], capture_output=True, text=True, check=True
    )
    plain, labels, mixed, four, note = json.loads(done.stdout)
    assert (plain, labels, four) == (PROMPTS, LABELS, PROMPTS[-4:])
    assert mixed[1] == PROMPTS[0]
    assert PROMPTS[2] in note


@pytest.mark.parametrize("isolate", [(), ("--isolate",)])
def test_a_backend_is_checked_with_them(tmp_path: Path, isolate: tuple[str, ...]) -> None:
    folder = write_table(tmp_path, prompts=PROMPTS, labels=LABELS)
    code = "from core_cli import main; main()"
    chosen = ("-k", "batch.order", "-k", "labels.steps", "-k", "history.speech")
    done = subprocess.run(
        [sys.executable, "-c", code, "conformance", *chosen, *isolate],
        capture_output=True,
        text=True,
        cwd=folder,
    )
    assert "3 of 3 chosen checks passed" in done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    "rows",
    [
        {"prompts": PROMPTS},
        {"labels": LABELS},
        {"prompts": PROMPTS[:5], "labels": LABELS},
        {"prompts": [*PROMPTS[:5], PROMPTS[0]], "labels": LABELS},
        {"prompts": [*PROMPTS, " "], "labels": LABELS},
        {"prompts": PROMPTS, "labels": ["bon", "bon", "neuf"]},
    ],
)
def test_too_few_are_refused_by_name(tmp_path: Path, rows: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"must be at least \d different, non-empty texts"):
        nearest_table(write_table(tmp_path, **rows))


def test_once_the_checks_are_there_it_is_too_late() -> None:
    import core_conformance.checking.ask  # noqa: F401 - it takes its prompts

    with pytest.raises(ValueError, match="already imported with other prompts"):
        use(Material(tuple(PROMPTS), tuple(LABELS)))
    use(None)
