"""The command group: built-in commands, those of plugins, and one place where errors end."""

from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from typing import Any

import click

import core
from core.cli import exits, output, streams
from core.cli.commands.backends import backends
from core.cli.commands.bench import bench
from core.cli.commands.calibrate import calibrate
from core.cli.commands.chat import chat
from core.cli.commands.classify import classify
from core.cli.commands.discover import discover
from core.cli.commands.evaluate import evaluate
from core.cli.commands.generate import generate
from core.cli.commands.info import info
from core.cli.commands.learn import learn
from core.cli.commands.merge import merge
from core.cli.commands.tune import tune
from core.cli.plugins import Hooks
from core.known_plugins import install_command

# command: the extra it comes with
_ELSEWHERE = {
    **{"conformance": "conformance", "convert": "mlx", "lora": "mlx", "mcp": "mcp"},
    "serve": "server",
}
_WAYS_ELSEWHERE = {("classify", "--ray"): "ray"}


class InferGroup(click.Group):
    """Turns every exception of a command into a line on stderr and an exit code."""

    hooks: Hooks

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ways: dict[str, dict[str, click.Command]] = {}

    def add_way(self, command: str, flag: str, way: click.Command) -> None:
        """Have ``way`` in the place of a command where ``flag`` stands among its arguments.

        For plugins that do the same elsewhere, a cluster say: ``way`` takes the flag itself, and
        what else makes sense there. Raises ValueError for a flag that is taken.
        """
        known = self._ways.setdefault(command, {})
        if flag in known or any(flag in option.opts for option in self.commands[command].params):
            raise ValueError(f"infer-cli {command} has a {flag} already; rename this one")
        known[flag] = way

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run as a program; what went wrong with plugins comes first, on stderr."""
        self.hooks.report()
        try:
            # Where click shows its errors itself, it shows them as they are.
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except Exception as error:  # noqa: BLE001 - this is where all of them end
            code = exits.ended(error)
        sys.exit(code or exits.OK)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """The chosen command; one that is not installed is answered with the pip command."""
        extra = _ELSEWHERE.get(args[0])
        if extra and args[0] not in self.commands and not ctx.resilient_parsing:
            ctx.fail(f"{args[0]!r} comes with core[{extra}]: {install_command(extra)}")
        name, command, rest = super().resolve_command(ctx, args)
        ways = self._ways.get(name or "", {})
        for flag, way in ways.items():
            if _among(flag, rest):
                return name, way, rest
        for (of, flag), extra in _WAYS_ELSEWHERE.items():
            if of == name and _among(flag, rest) and not ctx.resilient_parsing:
                ctx.fail(f"{flag} comes with core[{extra}]: {install_command(extra)}")
        return name, _listing(command, ways) if command else None, rest

    def invoke(self, ctx: click.Context) -> None:
        """Run the chosen command and tell the plugins how it ended."""
        ctx.obj = self.hooks  # commands tell them of events
        try:
            super().invoke(ctx)
        except BaseException as error:
            seen = exits.reported(error)
            self._finished(ctx, exits.code_of(error))
            if seen is error:
                raise
            raise seen from error
        self._finished(ctx, exits.OK)

    def _finished(self, ctx: click.Context, code: int) -> None:
        command = ctx.invoked_subcommand or ""
        self.hooks.emit("core_command_finished", command=command, exit_code=code)


def _among(flag: str, args: Sequence[str]) -> bool:
    """Whether the flag is one of the arguments, by itself or with a value behind ``=``."""
    return any(each.partition("=")[0] == flag for each in args)


def _listing(command: click.Command, ways: dict[str, click.Command]) -> click.Command:
    """The command, its help with the flags of its other ways."""
    shown = copy.copy(command)
    flags = [
        click.Option([flag], is_flag=True, expose_value=False, help=way.short_help)
        for flag, way in ways.items()
    ]
    shown.params = [*command.params, *flags]
    return shown


def _show_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """The program's version, and that of each distribution with a backend."""
    if not asked or ctx.resilient_parsing:
        return
    from core.registry import REGISTRY

    backends = {f"{entry.distribution} {entry.version}" for entry in REGISTRY.entries()}
    lines = [f"infer-cli, version {core.__version__}", *sorted(backends)]
    output.write_text("".join(f"{line}\n" for line in lines))
    ctx.exit()


def build() -> InferGroup:
    """A new command group with the commands of the plugins that are installed now."""

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
        help="Show the versions of this and of its backends, and exit.",
    )
    @click.option("--debug", is_flag=True, help="Show tracebacks (or set INFER_RAISE_ERRORS=1).")
    def group(debug: bool) -> None:
        """Local LLM text generation: find models, pick backends, classify or write text."""

    assert isinstance(group, InferGroup)
    asking = (calibrate, chat, classify, evaluate, generate, learn, tune)
    for command in (*asking, backends, bench, discover, info, merge):
        group.add_command(command)
    group.hooks = hooks = Hooks()
    hooks.load()
    hooks.register_commands(group)
    return group


def run() -> None:
    """Run ``infer-cli`` on the arguments of this process; exits."""
    streams.prepare()
    try:
        build()(prog_name="infer-cli")
    finally:
        streams.settle()
