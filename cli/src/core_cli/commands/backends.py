"""``infer-cli backends``: the installed backends and whether they can run here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from core.plugins import install_command
from core.system.terminal import visible
from core_cli import help, output
from core_hidden import hidden_by

if TYPE_CHECKING:
    from core.types import BackendStatus, Device

_COLUMNS = ("NAME", "AVAILABLE", "DEVICES", "FORMATS", "VERSION", "NOTE")


@click.command(cls=help.Command, epilog=help.examples("infer-cli backends -v"))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also list capabilities and backend-specific load options.",
)
def backends(as_json: bool, verbose: bool) -> None:
    """List the installed backends.

    Shows whether each one can run on this machine (or why not), its devices, formats and version.
    """
    from core.registry import REGISTRY

    statuses = [REGISTRY.status(name) for name in REGISTRY.names()]
    for failure in REGISTRY.failures():
        output.warn(f"{failure.distribution} has unreadable entry points: {failure.error}")
    if module := hidden_by([""]):
        output.warn(f"Python scripts in this folder import {module} as core: rename it.")
    if as_json:
        output.write_json(statuses)
        return
    _write(statuses, verbose)
    if not statuses:
        output.say(f"No backend is installed. Install one with: {install_command('mlx')}")


def _write(statuses: Sequence[BackendStatus], verbose: bool) -> None:
    below = verbose and output.is_terminal()  # a column of them would be very narrow there
    columns = (*_COLUMNS, "CAPABILITIES", "OPTIONS") if verbose and not below else _COLUMNS
    output.write_table(columns, [_cells(status)[: len(columns)] for status in statuses])
    if below:
        output.write_text("".join(map(_details, statuses)))


def _details(status: BackendStatus) -> str:
    capabilities = output.indented(", ".join(status.capabilities) or "-")
    options = [f"-O {name}=...: {what}" for name, what in status.options.items()]
    lines = [visible(status.name), capabilities, *map(output.indented, options)]
    return "\n" + "".join(f"{line}\n" for line in lines)


def _cells(status: BackendStatus) -> tuple[str, ...]:
    return (
        status.name,
        "yes" if status.available else "no",
        "; ".join(map(_device, status.devices)) or "-",
        ", ".join(status.formats) or "-",
        " ".join(f"{status.distribution} {status.version}".split()) or "-",
        status.reason or "",
        ", ".join(status.capabilities),
        ", ".join(status.options),
    )


def _device(device: Device) -> str:
    memory = output.human_size(device.memory_bytes) if device.memory_bytes else ""
    details = ", ".join(filter(None, (device.kind, memory, device.detail)))
    return f"{device.name} ({details})"
