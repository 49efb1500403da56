"""The English of messages and docstrings, counted as `tools/english.py` does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import pytest

from core_cli.app import build
from tools import english

PUZZLING_LOCALS = 0
"""Most variables and arguments called told, found, held, said or made."""


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    return sum(english.counts().values(), Counter())


def test_no_message_puzzles(counts: Counter[str]) -> None:
    assert counts["messages"] == 0, "python tools/english.py -v shows them"


def test_docstrings_begin_with_a_verb_or_a_noun(counts: Counter[str]) -> None:
    assert counts["all docstrings"] > 3000
    assert counts["first words"] < counts["all docstrings"] / 100


def test_locals_are_named_after_their_contents(counts: Counter[str]) -> None:
    assert counts["locals"] <= PUZZLING_LOCALS, "python tools/english.py -v shows them"


def helps(command: click.Command, *names: str) -> list[tuple[str, str]]:
    """Return the help text of a command and of all below it, each with its name."""
    context = click.Context(command, info_name=" ".join(names), terminal_width=200)
    texts = [(" ".join(names), command.get_help(context))]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (inner := command.get_command(context, name)) is not None:
                texts += helps(inner, *names, name)
    return texts


def test_no_help_puzzles_and_every_option_has_some() -> None:
    texts = helps(build(), "infer-cli")
    assert len(texts) > 15
    phrases = [(name, match[0]) for name, text in texts for match in english.PHRASES.finditer(text)]
    assert phrases == []
    assert [name for name, command in commands(build()) for _ in without_help(command)] == []


def commands(command: click.Command, name: str = "infer-cli") -> list[tuple[str, click.Command]]:
    """Return a command and all below it, each with its name."""
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    below = [pair for key, each in inner for pair in commands(each, f"{name} {key}")]
    return [(name, command), *below]


def without_help(command: click.Command) -> list[str]:
    options = [each for each in command.params if isinstance(each, click.Option)]
    return [str(each.name) for each in options if not each.help and not each.hidden]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('def f():\n    """What it is."""', "first words"),
        ('class F:\n    """Whether it is."""', "first words"),
        ('def f():\n    """Return it, behind the rest."""', "docstrings"),
        ('raise ValueError(f"{x} is no file.")', "messages"),
        ('click.option("--x", help="Begin anew.")', "messages"),
        ("def f():\n    found = 1", "locals"),
        ("def f(told): ...", "locals"),
        ("def f():\n    return [each for each in x]", "other locals"),
        ('click.echo("Done. What is left is shown.")', "messages"),
    ],
)
def test_a_finding_is_found(tmp_path: Path, source: str, kind: str) -> None:
    file = tmp_path / "it.py"
    file.write_text(source)
    assert kind in {each.kind for each in english.findings(file)}


def test_plain_sentences_are_not_findings(tmp_path: Path) -> None:
    file = tmp_path / "it.py"
    file.write_text(
        "class A:\n    made: int\n\n"
        'def f():\n    """Return it; there is no longer one."""\n    raise ValueError("x")'
    )
    assert {each.kind for each in english.findings(file)} == {"all docstrings"}
