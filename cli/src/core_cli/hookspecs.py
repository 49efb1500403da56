"""The hooks that plugins of the entry-point group ``core.hooks`` may implement.

A plugin marks its functions with ``pluggy.HookimplMarker("core")`` and needs nothing from here.
"""

from __future__ import annotations

import click
import pluggy

PROJECT = "core"

hookspec = pluggy.HookspecMarker(PROJECT)


@hookspec
def core_register_commands(cli: click.Group) -> None:
    """Add commands to ``infer-cli``: ``cli.add_command(...)`` or ``@cli.command()``.

    ``cli.add_way("classify", "--ray", command)`` replaces a built-in command when the flag is
    given. Called once at every start, ``--help`` included: import heavy things
    inside the commands. A name that is already taken is not replaced.
    """


@hookspec
def core_model_loaded(path: str, backend: str, seconds: float) -> None:
    """Hear that a command loaded the model at ``path`` with this backend in ``seconds``."""


@hookspec
def core_command_finished(command: str, exit_code: int) -> None:
    """Hear that the command of this name is about to end with ``exit_code``."""
