"""Rewords errors of the library for the command line: options are named by their flags."""

from __future__ import annotations

import click

from core.errors import CoreError, InvalidOptionError, PromptTooLongError


def in_flags(error: CoreError) -> str:
    """Return the message of an error that ended a command or a row."""
    text, flags = str(error), _flags()
    if isinstance(error, InvalidOptionError) and error.option == "options" and "pairs" in flags:
        return text.replace("options=", "-O ", 1)
    if isinstance(error, InvalidOptionError) and error.option in flags:
        return text.replace(f"{error.option}=", f"{flags[error.option]} ", 1)
    if isinstance(error, PromptTooLongError) and "context_len" in flags:
        return text.replace("context_len", flags["context_len"])
    return text


def _flags() -> dict[str, str]:
    """Return the long flag of each parameter of the current or last command."""
    context = click.get_current_context(silent=True)
    command = context.command if context else None
    if isinstance(command, click.Group) and context is not None:
        command = command.commands.get(context.invoked_subcommand or "")
    options = command.params if command else ()
    return {
        option.name: max(option.opts, key=len)
        for option in options
        if isinstance(option, click.Option) and option.name
    }
