"""The commands ``infer-cli lora merge`` and ``lora export``, without heavy imports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.system.outputs import output_type
from core.system.terminal import visible
from core_mlx_native.progress import progress_bar

if TYPE_CHECKING:
    import click


def add_adapter_commands(cli: click.Group) -> None:
    """Add both to the group ``lora``, creating it if necessary."""
    group = lora_group(cli)
    _add_merge(group)
    _add_export(group)


def lora_group(cli: click.Group) -> click.Group:
    """Return the group ``lora``, creating it if necessary."""
    import click

    group = cli.commands.get("lora")
    if isinstance(group, click.Group):
        return group

    @cli.group(epilog="\b\nExample:\n  infer-cli lora train --help")
    def lora() -> None:
        """Train, evaluate, merge and export LoRA adapters."""

    return lora


def _model_option() -> click.Option:
    import click

    return click.Option(
        ["-m", "--model"],
        envvar="INFER_MODEL",
        metavar="MODEL",
        required=True,
        help="Base model of the adapter. [env: INFER_MODEL]",
    )


def _add_merge(group: click.Group) -> None:
    import click

    @group.command(
        "merge", epilog="\b\nExample:\n  infer-cli lora merge -m MODEL news.lora news-model"
    )
    @click.argument("adapter", metavar="ADAPTER")
    @click.argument("out_dir", metavar="OUT_DIR", type=output_type(click.Path()))
    @click.option(
        "--overwrite", is_flag=True, help="Replace a model in OUT_DIR that lora merge wrote."
    )
    def command(model: str, adapter: str, out_dir: str, overwrite: bool) -> None:
        """Merge an adapter into its model's weights.

        OUT_DIR becomes a model directory that needs no adapter. Quantised weights are quantised
        again after merging.
        """
        from core.models.locating import locate
        from core_mlx_native.convert.merging import merge

        with progress_bar("merge") as show:
            target = merge(locate(model), adapter, out_dir, overwrite=overwrite, progress=show)
        click.echo(visible(str(target)))

    command.params.append(_model_option())


def _add_export(group: click.Group) -> None:
    import click

    @group.command(
        "export", epilog="\b\nExample:\n  infer-cli lora export -m MODEL news.lora news.gguf --gguf"
    )
    @click.argument("adapter", metavar="ADAPTER")
    @click.argument("out", metavar="OUT", type=output_type(click.Path()))
    @click.option("--gguf", "form", flag_value="gguf", help="Write a GGUF file for llama.cpp.")
    @click.option("--peft", "form", flag_value="peft", help="Write a PEFT adapter directory.")
    @click.option(
        "--mlx-lm", "form", flag_value="mlx-lm", help="Write an mlx-lm adapter directory."
    )
    @click.option(
        "--dtype",
        type=click.Choice(["float32", "float16"]),
        default="float32",
        show_default=True,
        help="Data type of the GGUF tensors.",
    )
    @click.option(
        "--overwrite", is_flag=True, help="Replace an adapter at OUT that lora export wrote."
    )
    def command(
        model: str, adapter: str, out: str, form: str | None, dtype: str, overwrite: bool
    ) -> None:
        """Export an adapter to GGUF, PEFT or mlx-lm format."""
        from core.models.locating import locate
        from core_mlx_native.convert.exporting import export_directory
        from core_mlx_native.convert.lora_gguf import export_gguf

        source = locate(model)
        if form is None:
            raise click.UsageError("No output format given. Add --gguf, --peft or --mlx-lm.")
        if form == "gguf":
            target = export_gguf(source, adapter, out, dtype=dtype, overwrite=overwrite)
        else:
            target = export_directory(
                source, adapter, out, "peft" if form == "peft" else "mlx-lm", overwrite=overwrite
            )
        click.echo(visible(str(target)))

    command.params.append(_model_option())
