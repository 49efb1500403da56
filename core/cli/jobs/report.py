"""The summary of a run as a JSON file, for programs that watch over jobs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.cli import output
from core.cli.jobs.gold import Gold

if TYPE_CHECKING:
    from core.cli.jobs.run import Task
    from core.cli.jobs.summary import Summary
    from core.cli.rows.bulk import RowAsker


def write(flags: Mapping[str, Any], task: Task, asker: RowAsker, summary: Summary) -> None:
    """Write the report to the file that ``--report`` names, and whole or not at all."""
    facts = {
        "command": task.command,
        "model": flags["model"],
        "backend": asker.backend,
        "input": flags["file"] or "-",
        "output": flags["output"] or "-",
        "labels": list(task.config.labels),
        **summary.to_dict(),
    }
    _write(flags["report"], output.json_lines([facts]))


def draw(name: str, summary: Summary) -> None:
    """Write the picture that ``--plot`` names."""
    assert isinstance(summary.gold, Gold)  # a plot of many labels a row is refused
    _write(name, summary.gold.picture().encode())


def _write(name: str, data: bytes) -> None:
    target = Path(name)
    partial = target.with_name(f"{target.name}.partial")
    partial.write_bytes(data)
    os.replace(partial, target)
