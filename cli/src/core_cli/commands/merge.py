"""``infer-cli merge``: one output from the shards of a job."""

from __future__ import annotations

from pathlib import Path

import click

from core_cli import help, output
from core_cli.options import OUTPUT_FILE


@click.command(
    cls=help.Command, epilog=help.examples("infer-cli merge labelled.jsonl part1.jsonl part2.jsonl")
)
@click.argument("out", type=OUTPUT_FILE)
@click.argument("parts", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--overwrite", is_flag=True, help="Replace an OUT written by an earlier job.")
def merge(out: str, parts: tuple[str, ...], overwrite: bool) -> None:
    """Merge the shards of a job into one file.

    PARTS are the outputs of classify or generate with --shard 1/N to --shard N/N, in any order.
    """
    from core_cli.jobs import merging

    count = merging.merge(Path(out), [Path(part) for part in parts], overwrite)
    output.say(
        f"Merged {output.counted(len(parts), 'shard')} into {out}: {output.counted(count, 'row')}."
    )
