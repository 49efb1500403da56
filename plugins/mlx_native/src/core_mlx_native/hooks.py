"""The hooks of this plugin: they add ``convert`` and ``lora`` to ``infer-cli``."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pluggy

from core.system.outputs import output_type
from core.system.visible import visible
from core_mlx_native.progress_bar import progress_bar

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli convert`` and ``infer-cli lora``."""
    import click

    from core_mlx_native.adapter_commands import add_adapter_commands
    from core_mlx_native.training_commands import add_training_commands

    add_training_commands(cli)
    add_adapter_commands(cli)

    @cli.command()
    @click.argument(
        "words",
        metavar="[MODEL] OUT_DIR",
        nargs=-1,
        required=True,
        type=output_type(click.Path()),
    )
    @click.option(
        *("-m", "--model"),
        envvar="INFER_MODEL",
        metavar="MODEL",
        help="The GGUF file, its directory, or a name that discover shows; or set INFER_MODEL.",
    )
    @click.option(
        "--dtype",
        type=click.Choice(["float32", "float16", "bfloat16"]),
        default="float32",
        show_default=True,
        help="How unquantised weights, and the scales of quantised ones, are stored.",
    )
    @click.option("--bits", type=click.Choice(["4", "8"]), help="Quantise weight matrices.")
    @click.option(
        "--group-size",
        type=click.Choice(["32", "64", "128"]),
        default="64",
        show_default=True,
        help="Weights per scale, with --bits.",
    )
    @click.option("--sha256", metavar="HEX", help="The checksum that MODEL.gguf must have.")
    @click.option("--overwrite", is_flag=True, help="Replace a model that was converted before.")
    def convert(
        words: tuple[str, ...],
        model: str | None,
        dtype: str,
        bits: str | None,
        group_size: str,
        sha256: str | None,
        overwrite: bool,
    ) -> None:
        """Make a safetensors model directory from a GGUF model (Llama, Gemma 3)."""
        from core_mlx_native.convert import convert, gguf_of

        source, out_dir = _source_and_target(words, model)
        gguf = gguf_of(source)
        with progress_bar("convert") as show:
            target = convert(
                gguf,
                out_dir,
                dtype=dtype,
                bits=int(bits) if bits else None,
                group_size=int(group_size),
                expect_sha256=sha256,
                overwrite=overwrite,
                progress=show,
            )
        click.echo(visible(str(target)))
        if sys.stderr.isatty():
            click.echo(visible(f"Try: infer-cli info {shlex.quote(str(target))}"), err=True)


def _source_and_target(words: tuple[str, ...], model: str | None) -> tuple[str, str]:
    """The model and the directory to make. Raises `click.UsageError`."""
    import click
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source("model")
    if len(words) == 2 and source is not ParameterSource.COMMANDLINE:
        return words[0], words[1]
    if len(words) == 1 and model is not None:
        return model, words[0]
    raise click.UsageError(
        "convert takes a model and a directory to make: infer-cli convert MODEL OUT_DIR, or "
        "infer-cli convert -m MODEL OUT_DIR."
    )
