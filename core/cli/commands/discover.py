"""``infer-cli discover``: the models on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from core.cli import output

if TYPE_CHECKING:
    from core.types import DiscoveredModel

_COLUMNS = ("NAME", "TYPE", "FORMAT", "QUANT", "SIZE", "PATH")


@click.command()
@click.argument("directory", required=False, metavar="[DIR]")
@click.option("--depth", type=click.IntRange(min=0), default=1, help="Levels below DIR; default 1.")
@click.option("--json", "as_json", is_flag=True, help="One JSON array.")
def discover(directory: str | None, depth: int, as_json: bool) -> None:
    """List the models on this machine.

    Looks in DIR, or in all the places where people keep models.
    """
    from core import api
    from core.models.files import HOW_TO_GET

    models = api.discover(directory, depth)
    if as_json:
        output.write_json(models)
        return
    output.write_table(_COLUMNS, map(_cells, models), whole=True)
    hint = "" if models else f" {HOW_TO_GET}"
    output.say(f"{output.counted(len(models), 'model')} found.{hint}")


def quantisation(bits: int, group: int) -> str:
    """``4 bits, groups of 64``; a dash for an unquantised model."""
    if not bits:
        return "-"
    return f"{bits} bits, groups of {group}" if group else f"{bits} bits"


def _cells(model: DiscoveredModel) -> tuple[str, ...]:
    bits = f"{model.quant_bits}-bit" if model.quant_bits else "-"
    size = output.human_size(model.size_bytes)
    return model.name, model.model_type or "-", model.format, bits, size, model.path
