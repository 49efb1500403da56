"""The summary of a run as a JSON file, for programs that monitor jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from core.system import outputs
from core_cli import reports
from core_cli.jobs.gold import Gold
from core_tasks import svg

if TYPE_CHECKING:
    from core_cli.jobs.run import Task
    from core_cli.jobs.summary import Summary
    from core_cli.rows.asker import RowAsker


def write(flags: Mapping[str, Any], task: Task, asker: RowAsker, summary: Summary) -> None:
    """Write the report to the file of ``--report``, replacing an earlier one."""
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
    """Write the plot to the file of ``--plot``."""
    assert isinstance(summary.gold, Gold)  # a plot of many labels a row is refused
    outputs.write(name, summary.gold.picture(), svg.KIND)
