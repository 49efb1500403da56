"""Help texts: commands by task, options in sections, an example of every command."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from core_cli import help
from core_cli.app import build

pytestmark = pytest.mark.whole  # it lists the commands of every plugin
OURS = {name for names in help.COMMANDS.values() for name in names}


def commands(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    assert isinstance(group, click.Group)
    for name, command in group.commands.items():
        if context.parent is None and name not in OURS:
            continue  # of a plugin of the tests
        inner = click.Context(command, info_name=name, parent=context)
        yield inner
        if isinstance(command, click.Group):
            yield from commands(inner)


ROOT = click.Context(build(), info_name="infer-cli")
COMMANDS = [*commands(ROOT)]
each_command = pytest.mark.parametrize(
    "context", COMMANDS, ids=[context.command_path for context in COMMANDS]
)


def test_commands_are_listed_by_task_with_whole_summaries() -> None:
    text = build().get_help(ROOT)
    listed = text.partition("\nFind models:\n")[2]
    assert listed.index(" classify ") < listed.index(" lora ") < listed.index(" serve ")
    assert "..." not in listed
    assert max(map(len, text.splitlines())) <= 80


@each_command
def test_a_command_has_an_example_that_parses(context: click.Context) -> None:
    epilog = context.command.epilog or ""
    title, *lines = epilog.removeprefix("\b\n").splitlines()
    assert title in ("Example:", "Examples:")
    assert max(map(len, context.get_help().splitlines())) <= 80
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        program, *words = shlex.split(line)
        path = context.command_path.split()[1:]
        assert [program, *words[: len(path)]] == ["infer-cli", *path]
        _parse(context, [word for word in words[len(path) :] if word != "--help"])


def _parse(context: click.Context, words: list[str]) -> None:
    """Raise for an option that the command lacks, or one without its value."""
    values, _, _ = context.command.make_parser(context).parse_args([*words])
    needed = {
        option.name
        for option in context.command.params
        if option.required and not isinstance(context.command, click.Group)
    }
    assert needed <= values.keys()


@each_command
def test_every_option_of_a_long_list_is_in_a_section(context: click.Context) -> None:
    rest = help.sections(context.command, context).get(help.REST, [])
    if isinstance(context.command, help.Command):
        assert {option.name for option in rest} <= {"_click_default_help"}
    else:
        assert isinstance(context.command, click.Group)


@pytest.mark.parametrize(
    ("command", "former", "name"),
    [("learn", "--field", "--text-field"), ("eval", "--data", "--input")],
)
def test_a_former_name_of_an_option_names_that_of_today(
    command: str, former: str, name: str
) -> None:
    done = CliRunner().invoke(build(), [command, former, "x"])
    assert f"Option '{former}' is called '{name}'." in done.stderr
