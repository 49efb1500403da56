"""The transport of ``infer-cli mcp``: messages on the stdin and the stdout of the program."""

from __future__ import annotations

from functools import partial

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.stdio import stdio_server

from core.system.terminal import stream


def serve(server: MCPServer) -> None:
    """Serve until stdin ends. Nothing else reads that stdin or writes to that stdout meanwhile."""
    anyio.run(partial(_serve, server))


async def _serve(server: MCPServer) -> None:
    # infer-cli has stdout to itself; mcp keeps stdin from everything else in the process.
    lowlevel = server._lowlevel_server  # `MCPServer.run` takes no streams
    with open(stream().fileno(), "w", encoding="utf-8", closefd=False) as stdout:
        async with stdio_server(stdout=anyio.wrap_file(stdout)) as (requests, answers):
            await lowlevel.run(requests, answers, lowlevel.create_initialization_options())
