"""The hook of this plugin, which adds the command ``mcp`` to ``infer-cli``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli mcp``."""
    import click

    @cli.command(epilog="\b\nExample:\n  infer-cli mcp MODEL")
    @click.argument("models", metavar="[MODEL]...", nargs=-1)
    @click.option("--backend", default="", help="Backend to use. [default: best available]")
    @click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=600.0,
        show_default=True,
        help="Time limit per call, in seconds.",
    )
    def mcp(models: tuple[str, ...], backend: str, timeout: float) -> None:
        """Run a Model Context Protocol (MCP) server over stdin and stdout.

        The tools are classify, generate and discover. They use the models given by name or path
        or, without any, all that discover lists.
        """
        from core_mcp.models import Models
        from core_mcp.server import create_server
        from core_mcp.stdio import serve

        serve(create_server(Models(models, backend), timeout))
