"""The commands ``infer-cli lora merge`` and ``lora export``; nothing heavy is imported here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.system.outputs import output_type
from core.system.visible import visible
from core_mlx_native.progress_bar import progress_bar

if TYPE_CHECKING:
    import click


def add_adapter_commands(cli: click.Group) -> None:
    """Add both to the group ``lora``, which is made where it is not there."""
    group = lora_group(cli)
    group.add_command(_merge_command())
    group.add_command(_export_command())


def lora_group(cli: click.Group) -> click.Group:
    """The group ``lora``, which is made where it is not there."""
    import click

    group = cli.commands.get("lora")
    if not isinstance(group, click.Group):
        group = click.Group("lora", help="Train LoRA adapters, merge and convert them.")
        cli.add_command(group)
    return group


def _model_option() -> click.Option:
    import click

    return click.Option(
        ["-m", "--model"],
        envvar="INFER_MODEL",
        metavar="MODEL",
        required=True,
        help="The model that the adapter belongs to, or set INFER_MODEL.",
    )


def _merge_command() -> click.Command:
    import click

    @click.command("merge")
    @click.argument("adapter", metavar="ADAPTER")
    @click.argument("out_dir", metavar="OUT_DIR", type=output_type(click.Path()))
    @click.option("--overwrite", is_flag=True, help="Replace a model that was merged before.")
    def command(model: str, adapter: str, out_dir: str, overwrite: bool) -> None:
        """Make a model directory of a model and an adapter, which needs no adapter any more.

        What was quantised is quantised again.
        """
        from core.models.names import locate
        from core_mlx_native.convert.merging import merge

        with progress_bar("merge") as show:
            target = merge(locate(model), adapter, out_dir, overwrite=overwrite, progress=show)
        click.echo(visible(str(target)))

    command.params.append(_model_option())
    return command


def _export_command() -> click.Command:
    import click

    @click.command("export")
    @click.argument("adapter", metavar="ADAPTER")
    @click.argument("out", metavar="OUT", type=output_type(click.Path()))
    @click.option("--gguf", "form", flag_value="gguf", help="A GGUF file, for llama_cpp.")
    @click.option("--peft", "form", flag_value="peft", help="A directory as PEFT lays it out.")
    @click.option("--mlx-lm", "form", flag_value="mlx-lm", help="A directory as mlx-lm does.")
    @click.option(
        "--dtype",
        type=click.Choice(["float32", "float16"]),
        default="float32",
        show_default=True,
        help="Of the numbers in a GGUF file.",
    )
    @click.option("--overwrite", is_flag=True, help="Replace an adapter that was exported before.")
    def command(
        model: str, adapter: str, out: str, form: str | None, dtype: str, overwrite: bool
    ) -> None:
        """Write an adapter as another program reads it."""
        from core.models.names import locate
        from core_mlx_native.convert.exporting import export_directory
        from core_mlx_native.convert.lora_gguf import export_gguf

        source = locate(model)
        if form is None:
            raise click.UsageError("Say what to write: --gguf, --peft or --mlx-lm.")
        if form == "gguf":
            target = export_gguf(source, adapter, out, dtype=dtype, overwrite=overwrite)
        else:
            target = export_directory(
                source, adapter, out, "peft" if form == "peft" else "mlx-lm", overwrite=overwrite
            )
        click.echo(visible(str(target)))

    command.params.append(_model_option())
    return command
