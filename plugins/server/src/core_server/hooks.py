"""The hook of this plugin: it adds the command ``serve`` to ``infer-cli``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

hookimpl = pluggy.HookimplMarker("core")


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    """Add ``infer-cli serve``."""
    import click

    from core_server.sizes import size

    @cli.command()
    @click.argument("models", metavar="MODEL...", nargs=-1, required=True)
    @click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
    @click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
    @click.option(
        "--api-key",
        envvar="INFER_API_KEY",
        help="Key that clients must send; or set INFER_API_KEY. On the command line, every user "
        "of this machine can read it in the list of processes.",
    )
    @click.option("--api-key-file", metavar="FILE", help="File with that key, on one line.")
    @click.option(
        "--max-queue",
        type=click.IntRange(1),
        default=512,
        show_default=True,
        help="Requests at once; more are told to come again.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(0, min_open=True),
        default=600.0,
        show_default=True,
        help="Seconds that a request may take.",
    )
    @click.option("--backend", "-b", default="", help="The backend; chosen by itself if left out.")
    @click.option("--context-len", type=click.IntRange(0), default=0, help="0: the model's own.")
    @click.option("--parallel-slots", type=click.IntRange(0), default=0, help="Texts side by side.")
    @click.option(
        "--memory-limit",
        metavar="SIZE",
        callback=lambda context, option, value: None if value is None else size(value),
        help="For all models together, 6GB say: those used longest ago are unloaded.",
    )
    @click.option("--chat", is_flag=True, help="Ask questions through the model's chat template.")
    @click.option(
        "--chat-template-kwargs",
        metavar="JSON",
        help="Variables of the chat template, where a request has none of the name.",
    )
    @click.option(
        "--thinking/--no-thinking",
        default=None,
        help='The same as {"enable_thinking": true} or false there.',
    )
    def serve(models: tuple[str, ...], **given: object) -> None:
        """Serve models to clients of System One and OpenAI.

        One model is loaded at the start, several are when they are first asked for.
        POST /v1/systemone, /v1/decisions, /v1/chat/completions, /v1/completions; GET /v1/models.
        """
        from core_server.running import run

        run(models, **given)  # type: ignore[arg-type]
