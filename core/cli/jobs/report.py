"""The summary of a run as a JSON file, for programs that watch over jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.cli import reports
from core.cli.jobs.gold import Gold
from core.system import outputs, svg

if TYPE_CHECKING:
    from core.cli.jobs.run import Task
    from core.cli.jobs.summary import Summary
    from core.cli.rows.bulk import RowAsker


def write(flags: Mapping[str, Any], task: Task, asker: RowAsker, summary: Summary) -> None:
    """Write the report to the file that ``--report`` names, in the place of an earlier one."""
    facts = {
        "command": task.command,
        "model": flags["model"],
        "backend": asker.backend,
        "input": flags["file"] or "-",
        "output": flags["output"] or "-",
        "labels": list(task.config.labels),
        **summary.to_dict(),
    }
    reports.save(flags["report"], facts)


def draw(name: str, summary: Summary) -> None:
    """Write the picture that ``--plot`` names."""
    assert isinstance(summary.gold, Gold)  # a plot of many labels a row is refused
    outputs.write(name, summary.gold.picture(), svg.KIND)
