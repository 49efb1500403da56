"""The hooks of infer-cli: their specification, and the plugins that implement them."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
import pluggy

from core_cli import exits, output

if TYPE_CHECKING:
    from core.plugins import EntryPointRecord


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


GROUP = "core.hooks"
DISABLE = "CORE_DISABLE_PLUGINS"


class Hooks:
    """The loaded hook plugins. ``failures`` has one line per failure."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(sys.modules[__name__])

    def load(self) -> None:
        """Import and register every plugin that CORE_DISABLE_PLUGINS does not name."""
        from core.plugins import read_group

        disabled = {name.strip() for name in os.environ.get(DISABLE, "").split(",")}
        records, failures = read_group(GROUP)
        for failure in failures:
            self.failures.append(f"{failure.distribution} has unreadable hooks: {failure.error}")
        for record in records:
            if record.name not in disabled:
                with self._guard(record.name):
                    self._register(record)

    def register_commands(self, cli: click.Group) -> None:
        """Let each plugin add its commands; existing commands cannot be replaced."""
        for name in self._names():
            before = dict(cli.commands)
            with self._guard(name):
                self._call(name, "core_register_commands", cli=cli)
            self._restore(name, before, cli)

    def records(self, path: str) -> Iterator[tuple[str, Mapping[str, object]]]:
        """Yield the rows of a file in any format, each with its place, for commands of plugins.

        Raises `click.UsageError` for a file that cannot be read, `RequestError` for a wrong row.
        """
        from core_cli.reading.row import Fields
        from core_cli.reading.source import opened

        with opened(path, "auto", Fields(text_wanted=False)) as source:
            for row in source.rows():
                if row.error is not None and not row.fields:
                    raise row.error
                yield row.place, row.fields

    def emit(self, event: str, **arguments: object) -> None:
        """Notify every plugin of an event; failures are reported on stderr at once."""
        known = len(self.failures)
        for name in self._names():
            with self._guard(name):
                self._call(name, event, **arguments)
        self.report(known)

    def report(self, start: int = 0) -> None:
        """Print the failures from number ``start`` on, one line each, on stderr."""
        for failure in self.failures[start:]:
            output.warn(" ".join(failure.split()))

    def _names(self) -> list[str]:
        return [name for name, plugin in self._manager.list_name_plugin() if plugin is not None]

    def _register(self, record: EntryPointRecord) -> None:
        if self._manager.has_plugin(record.name):
            raise ValueError(f"{record.distribution} uses the name of another hook plugin")
        self._manager.register(record.load(), name=record.name)

    def _call(self, name: str, hook: str, **arguments: object) -> None:
        others = [plugin for other, plugin in self._manager.list_name_plugin() if other != name]
        self._manager.subset_hook_caller(hook, others)(**arguments)

    def _restore(self, name: str, before: dict[str, click.Command], cli: click.Group) -> None:
        for command, original in before.items():
            if cli.commands.get(command) is not original:
                cli.commands[command] = original
                self.failures.append(
                    f"hook plugin {name!r} tried to replace the command {command!r}; the original "
                    "is kept. Rename the plugin's command."
                )

    @contextmanager
    def _guard(self, name: str) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - a plugin may also call sys.exit
            if exits.debugging():
                output.say("".join(traceback.format_exception(error)), end="")
            self.failures.append(
                f"hook plugin {name!r} failed and was skipped: {type(error).__name__}: {error} "
                f"(disable it with {DISABLE}={name})"
            )
