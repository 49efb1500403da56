"""The hook of this plugin: it gives ``infer-cli classify`` the flag ``--ray``."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: Any) -> None:
    """Add the way that ``classify`` goes on a cluster."""
    import click

    from core.system.outputs import output_type

    file = click.Path(exists=True, dir_okay=False, readable=True)

    @click.command("classify", short_help="Ask on a Ray cluster; --ray --help tells of it.")
    @click.option(
        "--ray",
        "address",
        metavar="[ADDRESS]",
        is_flag=False,
        flag_value="",
        help="The cluster; without an address the one of this machine, or a new one.",
    )
    @click.option("-m", "--model", envvar="INFER_MODEL", required=True, help="As each node has it.")
    @click.option("-i", "--input", "source", required=True, help="Parquet: files, a folder, a URL.")
    @click.option(
        *("-o", "--output"),
        required=True,
        metavar="OUT",
        type=output_type(click.Path()),
        help="A folder, or its URL.",
    )
    @click.option("--field", default="text", show_default=True, help="The column with the text.")
    @click.option("--id-field", help="A column whose values differ; default: one that is made.")
    @click.option(
        "--allow-blank", is_flag=True, help="Use rows whose text is blank. Default: they fail."
    )
    @click.option("--labels", metavar="A,B,C", help="The labels to choose from.")
    @click.option(
        "--label-prefix",
        default=" ",
        help="Text before a label. [default: a space, if it fits]",
    )
    @click.option("--template", default="{text}", help='The prompt: "...{text}...".')
    @click.option("--task", type=file, help="A task file, which says all that is asked.")
    @click.option("--head", type=file, help="A head file, which learn has written.")
    @click.option("--backend", default="", help="Default: the best one of each node.")
    @click.option("--concurrency", type=click.IntRange(1), help="Actors, each with a model.")
    @click.option("--num-gpus", type=float, help="Of each actor; default: one, where there are.")
    @click.option("--num-cpus", type=float, help="Of each actor, and its model's threads.")
    @click.option("--batch-size", type=click.IntRange(1), default=1024, show_default=True)
    @click.option(
        "--rows-per-file",
        type=click.IntRange(1),
        default=16_384,
        show_default=True,
        help="Rows of a file of OUT. What is not in a whole one is asked again.",
    )
    @click.option("--resume", is_flag=True, help="Go on with a job that was broken off.")
    @click.option("--overwrite", is_flag=True, help="Replace an OUT that a job has written.")
    @click.option("-v", "--verbose", is_flag=True, help="Say what was chosen, and why.")
    def classify(**given: Any) -> None:
        """Choose a label for each row of Parquet files, on a Ray cluster.

        The answers are Parquet files in OUT, in no order, each row once; --resume goes on after
        any end. Rows that fail are reported, and the exit code is then 5.
        """
        from core_ray.job import run

        run(given)

    cli.add_way("classify", "--ray", classify)
