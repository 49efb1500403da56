"""Hooks of this plugin, which add ``convert`` and ``lora`` to ``infer-cli``."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pluggy

from core.system.outputs import output_type
from core.system.terminal import visible
from core_mlx_native.progress import progress_bar

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

    @cli.command(epilog="\b\nExample:\n  infer-cli convert smollm2.gguf smollm2-mlx --bits 8")
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
        help="GGUF file, its directory, or a name listed by discover. [env: INFER_MODEL]",
    )
    @click.option(
        "--dtype",
        type=click.Choice(["float32", "float16", "bfloat16"]),
        default="float32",
        show_default=True,
        help="Storage type of unquantised weights and of the scales of quantised ones.",
    )
    @click.option(
        "--bits", type=click.Choice(["4", "8"]), help="Quantise weight matrices to this many bits."
    )
    @click.option(
        "--group-size",
        type=click.Choice(["32", "64", "128"]),
        default="64",
        show_default=True,
        help="Number of weights per scale, with --bits.",
    )
    @click.option("--sha256", metavar="HEX", help="Expected SHA-256 checksum of the GGUF file.")
    @click.option(
        "--overwrite", is_flag=True, help="Replace a model in OUT_DIR that convert wrote."
    )
    def convert(
        words: tuple[str, ...],
        model: str | None,
        dtype: str,
        bits: str | None,
        group_size: str,
        sha256: str | None,
        overwrite: bool,
    ) -> None:
        """Convert a GGUF model (Llama, Gemma 3) to a safetensors model directory."""
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
    """Return the model and the output directory. Raises `click.UsageError`."""
    import click
    from click.core import ParameterSource

    source = click.get_current_context().get_parameter_source("model")
    if len(words) == 2 and source is not ParameterSource.COMMANDLINE:
        return words[0], words[1]
    if len(words) == 1 and model is not None:
        return model, words[0]
    raise click.UsageError(
        "Expected a model and an output directory: infer-cli convert MODEL OUT_DIR, or infer-cli "
        "convert -m MODEL OUT_DIR."
    )
