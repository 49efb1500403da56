"""The hook of this plugin, which gives ``infer-cli classify`` the flag ``--ray``."""

from __future__ import annotations

from typing import Any

import pluggy

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: Any) -> None:
    """Add the variant of ``classify`` that runs on a cluster."""
    import click

    from core.system.outputs import output_type

    file = click.Path(exists=True, dir_okay=False, readable=True)

    @click.command(
        "classify",
        short_help="Run on a Ray cluster; see --ray --help.",
        epilog="\b\nExample:\n  infer-cli classify --ray -m MODEL -i rows/ --labels a,b -o out/",
    )
    @click.option(
        "--ray",
        "address",
        metavar="[ADDRESS]",
        is_flag=False,
        flag_value="",
        help="Run on the Ray cluster at ADDRESS. [default: local cluster, started if needed]",
    )
    @click.option(
        "-m",
        "--model",
        envvar="INFER_MODEL",
        required=True,
        help="Model path or name, valid on every node. [env: INFER_MODEL]",
    )
    @click.option(
        "-i", "--input", "source", required=True, help="Parquet file, folder or URL to read."
    )
    @click.option(
        *("-o", "--output"),
        required=True,
        metavar="OUT",
        type=output_type(click.Path()),
        help="Folder or URL to write to.",
    )
    @click.option(
        *("--text-field", "field"),
        default="text",
        show_default=True,
        help="Column with the text.",
    )
    @click.option("--id-field", help="Column with unique ids. [default: generated]")
    @click.option(
        "--allow-blank",
        is_flag=True,
        help="Accept rows with blank text. [default: reject them]",
    )
    @click.option("--labels", metavar="A,B,C", help="Comma-separated labels.")
    @click.option(
        "--label-prefix",
        default=" ",
        help="Text between prompt and label. [default: a space, if it fits]",
    )
    @click.option(
        "--label-sentence",
        metavar="TEXT",
        default="This text is about {label}.",
        show_default=True,
        help="Sentence of a label, {label} filled in, that an encoder compares with the text.",
    )
    @click.option(
        "--template",
        default="{text}",
        help="Prompt template; {text} is filled in. [default: {text}]",
    )
    @click.option("--task", type=file, help="Take prompt, labels and calibration from a task file.")
    @click.option("--head", type=file, help="Use a classifier head written by learn.")
    @click.option(
        "--backend", default="", help="Backend to use. [default: best available on each node]"
    )
    @click.option(
        "--concurrency",
        type=click.IntRange(1),
        help="Number of actors; each loads the model. [default: as many as fit the cluster]",
    )
    @click.option(
        "--num-gpus",
        type=float,
        help="GPUs per actor. [default: 1 if available, without --num-cpus]",
    )
    @click.option(
        "--num-cpus", type=float, help="CPUs per actor, also the thread count of its model."
    )
    @click.option(
        "--batch-size",
        type=click.IntRange(1),
        default=1024,
        show_default=True,
        help="Rows per call of the model.",
    )
    @click.option(
        "--rows-per-file",
        type=click.IntRange(1),
        default=16_384,
        show_default=True,
        help="Rows per output file; incomplete files are recomputed on --resume.",
    )
    @click.option("--resume", is_flag=True, help="Resume an interrupted job.")
    @click.option("--overwrite", is_flag=True, help="Replace an OUT written by an earlier job.")
    @click.option(
        "-v", "--verbose", is_flag=True, help="Report the placement chosen, with reasons."
    )
    def classify(**given: Any) -> None:
        """Label the rows of Parquet files on a Ray cluster.

        Writes Parquet files to OUT, unordered, each row exactly once; --resume continues an
        interrupted run. Failed rows are reported, and the exit code is then 5.
        """
        from core_ray.job import run

        run(given)

    cli.add_way("classify", "--ray", classify)
