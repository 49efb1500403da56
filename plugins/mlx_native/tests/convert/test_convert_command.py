"""``infer-cli convert`` as the hook adds it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from core.errors import ConversionError
from core_mlx_native import hooks
from core_mlx_native.checkpoint.config import load_config

MakeGguf = Callable[..., Any]

_HEAVY = "mlx numpy gguf tokenizers jinja2 click"


@pytest.fixture
def cli() -> click.Group:
    group = click.Group()
    hooks.core_register_commands(group)
    return group


def test_convert(tmp_path: Path, tiny_gguf: MakeGguf, cli: click.Group) -> None:
    source, target = tiny_gguf().write(tmp_path / "m.gguf"), tmp_path / "out"
    arguments = ["convert", str(source), str(target), "--bits", "8", "--group-size", "32"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0
    assert done.stdout == f"{target}\n"
    assert done.stderr == ""  # no progress where nobody watches
    quantization = load_config(target).quantization
    assert quantization is not None
    assert (quantization.default.bits, quantization.default.group_size) == (8, 32)


def test_errors_reach_the_host_as_they_are(
    tmp_path: Path, tiny_gguf: MakeGguf, cli: click.Group
) -> None:
    source = tiny_gguf().write(tmp_path / "m.gguf")
    arguments = ["convert", str(source), str(tmp_path / "out"), "--sha256", "00"]
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, ConversionError)


@pytest.mark.parametrize("wrong", [["--bits", "5"], ["--dtype", "int8"], ["--group-size", "7"]])
def test_usage_errors(tmp_path: Path, cli: click.Group, wrong: list[str]) -> None:
    done = CliRunner().invoke(cli, ["convert", "m.gguf", str(tmp_path / "out"), *wrong])
    assert done.exit_code == 2


def test_the_hook_module_is_light() -> None:
    code = (
        "import sys, core_mlx_native.hooks\n"
        f"print([name for name in {_HEAVY.split()} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
