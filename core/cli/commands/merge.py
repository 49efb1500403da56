"""``infer-cli merge``: one output of the parts of a job."""

from __future__ import annotations

from pathlib import Path

import click

from core.cli import output


@click.command()
@click.argument("out", type=click.Path(dir_okay=False))
@click.argument("parts", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--overwrite", is_flag=True, help="Write an existing OUT anew.")
def merge(out: str, parts: tuple[str, ...], overwrite: bool) -> None:
    """Make one output of the parts of a job.

    PARTS are what `classify` or `generate` wrote with --shard 1/N to --shard N/N, in any order.
    """
    from core.cli.jobs import merging

    if Path(out).exists() and not overwrite:
        raise click.UsageError(f"{out} exists. --overwrite writes it anew.")
    count = merging.merge(Path(out), [Path(part) for part in parts])
    output.say(f"{output.counted(count, 'row')} of {output.counted(len(parts), 'part')} in {out}.")
