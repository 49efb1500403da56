"""The hooks of this plugin: they add the command ``convert`` to ``infer-cli``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pluggy

from core.system.visible import visible

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli convert``."""
    import click

    path = click.Path(path_type=Path)

    @cli.command()
    @click.argument("gguf", metavar="MODEL.gguf", type=path)
    @click.argument("out_dir", metavar="OUT_DIR", type=path)
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
    @click.option("--overwrite", is_flag=True, help="Replace a model that is in OUT_DIR.")
    def convert(
        gguf: Path,
        out_dir: Path,
        dtype: str,
        bits: str | None,
        group_size: str,
        sha256: str | None,
        overwrite: bool,
    ) -> None:
        """Make a safetensors model directory from a GGUF file (Llama, Gemma 3)."""
        from core_mlx_native.convert import convert

        with _progress() as show:
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


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows progress: a bar on stderr if that is a terminal, else nothing."""
    import click

    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    with click.progressbar(length=1, label="convert", file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield show
