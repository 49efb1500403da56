"""``infer-cli merge``: one output of the parts of a job."""

from __future__ import annotations

from pathlib import Path

import click

from core.cli import output
from core.cli.rows.flags import OUTPUT_FILE


@click.command()
@click.argument("out", type=OUTPUT_FILE)
@click.argument("parts", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--overwrite", is_flag=True, help="Replace an OUT that a job has written.")
def merge(out: str, parts: tuple[str, ...], overwrite: bool) -> None:
    """Make one output of the parts of a job.

    PARTS are what `classify` or `generate` wrote with --shard 1/N to --shard N/N, in any order.
    """
    from core.cli.jobs import merging

    count = merging.merge(Path(out), [Path(part) for part in parts], overwrite)
    output.say(f"{output.counted(count, 'row')} of {output.counted(len(parts), 'part')} in {out}.")
