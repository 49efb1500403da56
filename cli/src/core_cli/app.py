"""The command group: built-in and plugin commands, and the handling of all errors."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

import click

import core
from core.plugins import install_command
from core_cli import exits, help, output
from core_cli.commands.backends import backends
from core_cli.commands.bench import bench
from core_cli.commands.calibrate import calibrate
from core_cli.commands.chat import chat
from core_cli.commands.classify import classify
from core_cli.commands.discover import discover
from core_cli.commands.evaluate import evaluate
from core_cli.commands.explain import explain
from core_cli.commands.generate import generate
from core_cli.commands.info import info
from core_cli.commands.label import label
from core_cli.commands.learn import learn
from core_cli.commands.merge import merge
from core_cli.commands.tune import tune
from core_cli.plugins import Hooks

# Commands of other distributions, with the extra that installs each.
_ELSEWHERE = {
    **{"conformance": "conformance", "convert": "mlx", "lora": "mlx", "mcp": "mcp"},
    "serve": "server",
}
_WAYS_ELSEWHERE = {("classify", "--ray"): "ray"}


class InferGroup(help.Group):
    """A group that turns every exception of a command into a message and an exit code."""

    hooks: Hooks

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ways: dict[str, dict[str, click.Command]] = {}

    def add_way(self, command: str, flag: str, way: click.Command) -> None:
        """Register ``way``, a variant of a command that runs when ``flag`` is given.

        For plugins that run the command elsewhere, for example on a cluster. ``way`` takes the
        flag itself and its own options. Raises ValueError for a flag that is taken.
        """
        known = self._ways.setdefault(command, {})
        if flag in known or any(flag in option.opts for option in self.commands[command].params):
            raise ValueError(f"infer-cli {command} already has an option {flag}; rename this one")
        known[flag] = way

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program; plugin failures are reported first, on stderr."""
        self.hooks.report()
        try:
            # In standalone mode click would print its errors without our exit codes.
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except Exception as error:  # noqa: BLE001 - the last handler of all errors
            code = exits.ended(error)
        sys.exit(code or exits.OK)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the chosen command. One that is not installed is an error with the pip command."""
        extra = _ELSEWHERE.get(args[0])
        if extra and args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"{args[0]!r} is not installed. Install it with: {install_command(extra)}")
        name, command, rest = super().resolve_command(ctx, args)
        ways = self._ways.get(name or "", {})
        for flag, way in ways.items():
            if _among(flag, rest):
                return name, way, rest
        for (of, flag), extra in _WAYS_ELSEWHERE.items():
            if of == name and _among(flag, rest) and not ctx.resilient_parsing:
                ctx.fail(f"{flag} is not installed. Install it with: {install_command(extra)}")
        return name, _listing(command, ways) if command else None, rest

    def invoke(self, ctx: click.Context) -> None:
        """Run the chosen command and notify the plugins of its end."""
        ctx.obj = self.hooks  # commands emit events through it
        try:
            super().invoke(ctx)
        except BaseException as error:
            known = help.renamed(error) if isinstance(error, click.NoSuchOption) else error
            seen = exits.reported(known)
            self._finished(ctx, exits.code_of(error))
            if seen is error:
                raise
            raise seen from error
        self._finished(ctx, exits.OK)

    def _finished(self, ctx: click.Context, code: int) -> None:
        command = ctx.invoked_subcommand or ""
        self.hooks.emit("core_command_finished", command=command, exit_code=code)


def _among(flag: str, args: Sequence[str]) -> bool:
    """Return whether the flag is one of the arguments, by itself or with a value after ``=``."""
    return any(argument.partition("=")[0] == flag for argument in args)


def _listing(command: click.Command, ways: dict[str, click.Command]) -> click.Command:
    """Return the command, with the flags of its variants in its help."""
    shown = copy.copy(command)
    flags = [
        click.Option([flag], is_flag=True, expose_value=False, help=way.short_help)
        for flag, way in ways.items()
    ]
    shown.params = [*command.params, *flags]
    return shown


def _show_version(ctx: click.Context, _: click.Parameter, requested: bool) -> None:
    """Print the versions of the program and of each distribution with a backend."""
    if not requested or ctx.resilient_parsing:
        return
    from core.registry import REGISTRY

    backends = {f"{entry.distribution} {entry.version}" for entry in REGISTRY.entries()}
    lines = [f"infer-cli, version {core.__version__}", *sorted(backends)]
    output.write_text("".join(f"{line}\n" for line in lines))
    ctx.exit()


def build() -> InferGroup:
    """Return a new command group with the commands of all installed plugins."""

    @click.group(
        name="infer-cli",
        cls=InferGroup,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Exit codes: 0 ok, 1 failed, 2 usage, 3 model not found, 4 backend unavailable, "
        "5 some rows failed, 130 interrupted, 143 terminated.",
    )
    @click.option(
        "--version",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_version,
        help="Show the versions of infer-cli and its backends, then exit.",
    )
    @click.option("--debug", is_flag=True, help="Show tracebacks (or set INFER_RAISE_ERRORS=1).")
    def group(debug: bool) -> None:
        """Run local language models: classify, generate, chat, serve."""

    assert isinstance(group, InferGroup)
    asking = (calibrate, chat, classify, evaluate, explain, generate, label, learn, tune)
    for command in (*asking, backends, bench, discover, info, merge):
        group.add_command(command)
    group.hooks = hooks = Hooks()
    hooks.load()
    hooks.register_commands(group)
    return group


def run() -> None:
    """Run ``infer-cli`` on the arguments of this process, then exit."""
    exits.prepare()
    try:
        build()(prog_name="infer-cli")
    finally:
        exits.settle()
