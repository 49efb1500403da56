"""The hook of this plugin, which adds the command ``serve`` to ``infer-cli``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("core")
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([kmgt]?)(i?)b?\s*", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli serve``."""
    import click

    @cli.command(epilog="\b\nExample:\n  infer-cli serve MODEL --port 8000")
    @click.argument("models", metavar="MODEL...", nargs=-1, required=True)
    @click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
    @click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=8000,
        show_default=True,
        help="Port to listen on.",
    )
    @click.option(
        "--api-key",
        envvar="INFER_API_KEY",
        help="Require this API key. On the command line, every user of this machine can read it "
        "in the process list. [env: INFER_API_KEY]",
    )
    @click.option(
        "--api-key-file",
        metavar="FILE",
        help="Read the API key from FILE, which holds it on one line.",
    )
    @click.option(
        "--max-queue",
        type=click.IntRange(1),
        default=512,
        show_default=True,
        help="Maximum concurrent requests; further ones get 429.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=600.0,
        show_default=True,
        help="Time limit per request, in seconds.",
    )
    @click.option("--backend", default="", help="Backend to use. [default: best available]")
    @click.option(
        "--context-len",
        type=click.IntRange(0),
        default=0,
        help="Context length in tokens; 0 uses the model's. [default: 0]",
    )
    @click.option(
        "--parallel-slots",
        type=click.IntRange(0),
        default=0,
        help="Sequences to decode concurrently; 0 lets the backend choose. [default: 0]",
    )
    @click.option(
        "--memory-limit",
        metavar="SIZE",
        callback=lambda context, option, value: None if value is None else size(value),
        help="Memory for all models, such as 6GB; least recently used ones are unloaded.",
    )
    @click.option(
        *("--alias", "aliases"),
        metavar="NAME[=MODEL]",
        multiple=True,
        help="Serve the first model, or MODEL, also as NAME, such as gpt-4o-mini. Repeatable.",
    )
    @click.option(
        *("--task", "tasks"),
        metavar="NAME=FILE",
        multiple=True,
        callback=named_files,
        help="Serve the task in FILE, which clients select by NAME. Repeatable.",
    )
    @click.option(
        *("--head", "heads"),
        metavar="NAME=FILE",
        multiple=True,
        callback=named_files,
        help="Serve the classifier head in FILE, which clients select by NAME. Repeatable.",
    )
    @click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="Lowest level to log: refusals are warnings, health checks and metrics debug.",
    )
    @click.option(
        "--access-log/--no-access-log",
        default=True,
        help="Log a line for each request, with its id. [default: access-log]",
    )
    @click.option("--chat", is_flag=True, help="Apply the chat template to decision questions.")
    @click.option(
        "--chat-template-kwargs",
        metavar="JSON",
        help="Chat template variables as a JSON object; a request's own take precedence.",
    )
    @click.option(
        "--thinking/--no-thinking",
        default=None,
        help="Set the chat template variable enable_thinking, unless a request does.",
    )
    def serve(models: tuple[str, ...], **given: object) -> None:
        """Serve models over HTTP (OpenAI and System One APIs).

        A single model is loaded at startup; several are loaded on first use.
        POST /v1/systemone, /v1/decisions, /v1/chat/completions, /v1/completions; GET /v1/models.
        """
        from core_server.running import run

        run(models, **given)  # type: ignore[arg-type]


def named_files(
    context: click.Context, option: click.Parameter, pairs: Sequence[str]
) -> dict[str, str]:
    """Return the files of ``NAME=FILE`` by name. Raises `click.BadParameter`."""
    import click

    files: dict[str, str] = {}
    for pair in pairs:
        name, _, file = pair.partition("=")
        if not name or not file:
            raise click.BadParameter(f"{pair!r} is not NAME=FILE. Write, for example, news={pair}.")
        if name in files:
            raise click.BadParameter(f"Two files are named {name!r}. Rename one of them.")
        if not os.path.isfile(file):
            raise click.BadParameter(f"File {file!r} does not exist. Check its path.")
        files[name] = file
    return files


def size(text: str) -> int:
    """Return the bytes of a size such as ``6GB`` or ``500 MiB``; an i makes units of 1,024.

    Raises `click.BadParameter`.
    """
    import click

    match = _SIZE.fullmatch(text)
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size. Write, for example, 6GB, 500MB or 2GiB.")
    number, unit, binary = match.groups()
    return int(float(number) * (1024 if binary else 1000) ** _POWERS[unit.lower()])
