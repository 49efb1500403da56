"""docs/cli.md says what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core_cli import exits, plugins

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

DOCS = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


def test_every_command_is_documented(infer_cli: InferCli) -> None:
    helped = infer_cli("--help").stdout.split("Find models:")[1].split("Exit codes")[0]
    commands = set(re.findall(r"^  (\w+) ", helped, re.MULTILINE)) - {"hello"}
    documented = set(re.findall(r"^\| `infer-cli (\w+)", DOCS, re.MULTILINE))
    assert commands <= documented


@pytest.mark.whole
def test_every_flag_in_the_documentation_exists(infer_cli: InferCli) -> None:
    helped = "".join(
        infer_cli(*command, "--help").stdout
        for command in (
            [],
            ["classify"],
            ["calibrate"],
            ["learn"],
            ["label"],
            ["explain"],
            ["tune"],
            ["eval"],
            ["bench"],
            ["generate"],
            ["chat"],
            ["discover"],
            ["info"],
            ["backends"],
        )
    )
    flags = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", DOCS))
    assert len(flags) > 20
    assert {flag for flag in flags if flag not in helped} == set()


def test_every_hook_is_documented_with_its_arguments() -> None:
    for name in (name for name in dir(plugins) if name.startswith("core_")):
        function = getattr(plugins, name)
        arguments = ", ".join(function.__code__.co_varnames[: function.__code__.co_argcount])
        assert f"| `{name}({arguments})` |" in DOCS


def test_every_exit_code_is_documented() -> None:
    codes = {value for name, value in vars(exits).items() if name.isupper() and name[0] != "_"}
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", DOCS, re.MULTILINE)}
    assert documented == codes
