"""Write docs/commands.md: the help of every command of infer-cli, read from click.

``python tools/commands.py --write``; tests/test_site.py compares the page with the commands.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
INTRODUCTION = """\
# Commands

The options of every command of `infer-cli`, from its `--help`. Commands without the name of a
distribution are in `infercore-cli`. [cli.md](cli.md) describes input, output and exit codes."""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(page(), end="")


def page() -> str:
    """Return the page."""
    from core_cli.app import build

    context = click.Context(build(), info_name="infer-cli")
    return "\n\n".join([INTRODUCTION, *_sections(context)]) + "\n"


def _sections(context: click.Context) -> Iterator[str]:
    """The commands of a group, sorted, those of its groups after it."""
    group = context.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(context):
        if (command := group.get_command(context, name)) is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        yield from _section(inner)
        if isinstance(command, click.Group):
            yield from _sections(inner)


def _section(context: click.Context) -> Iterator[str]:
    command = context.command
    module = (command.callback.__module__ if command.callback else "core_cli").partition(".")[0]
    yield f"## {context.command_path.removeprefix('infer-cli ')}"
    usage = command.collect_usage_pieces(context)
    yield "```\n" + " ".join([context.command_path, *usage]) + "\n```"
    if command.help:
        yield _text(command.help)
    if module != "core_cli":
        yield f"From `infer{module.replace('_', '-')}`."
    rows = [row for option in command.params if (row := option.get_help_record(context))]
    options = [f"| {_code(names)} | {_cell(text)} |" for names, text in rows]
    if options:
        yield "\n".join(["| option | meaning |", "|---|---|", *options])
    if command.epilog:
        examples = command.epilog.splitlines()[2:]  # without its title
        yield "```\n" + "\n".join(map(str.strip, examples)) + "\n```"


def _text(text: str) -> str:
    """A help text as Markdown: paragraphs on lines of their own."""
    plain = inspect.cleandoc(text).partition("\f")[0].replace("\b\n", "")
    return _escaped(re.sub(r"(?<!\n)\n(?!\n)", " ", plain).strip())


def _code(names: str) -> str:
    choices = re.sub(r"\[([^\]]*\|[^\]]*)\]", lambda match: f"{{{match[1]}}}", names)
    return "`" + choices.replace("|", ",") + "`"  # a bar would end the cell


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("] [", "; ")  # two brackets in a row would be a link
    return _escaped(text).replace("|", "\\|")


def _escaped(text: str) -> str:
    return re.sub(r"([\\<*`])", r"\\\1", text)


if __name__ == "__main__":
    main()
