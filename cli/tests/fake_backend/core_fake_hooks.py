"""A hook plugin: one command, and a diary of the events it hears."""

from __future__ import annotations

import click
import pluggy

hookimpl = pluggy.HookimplMarker("core")
DIARY: list[tuple[object, ...]] = []


@hookimpl
def core_register_commands(cli: click.Group) -> None:
    @cli.command("hello")
    def hello() -> None:
        """Say hello."""
        click.echo("hello from a plugin")


@hookimpl
def core_model_loaded(path: str, backend: str, seconds: float) -> None:
    DIARY.append(("loaded", path, backend, seconds >= 0))


@hookimpl
def core_command_finished(command: str, exit_code: int) -> None:
    DIARY.append(("finished", command, exit_code))
