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

from core.errors import ConversionError, InvalidModelError, ModelNotFoundError
from core_mlx_native import hooks
from core_mlx_native.convert import convert
from core_runtime.checkpoint.config import load_config

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


@pytest.fixture
def named(tmp_path: Path, tiny_gguf: MakeGguf, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of LM Studio, ``publisher/tiny/m.gguf``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("INFER_MODEL", raising=False)
    folder = tmp_path / ".lmstudio" / "models" / "publisher" / "tiny"
    folder.mkdir(parents=True)
    file = folder / "m.gguf"
    tiny_gguf().write(file)
    return file


@pytest.mark.parametrize("words", [["publisher/tiny"], ["-m", "publisher/tiny"], ["tiny/m.gguf"]])
def test_convert_takes_names_and_directories(
    tmp_path: Path, named: Path, cli: click.Group, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(named.parents[1])  # where the last of them is a path
    done = CliRunner().invoke(cli, ["convert", *words, str(tmp_path / "out")])
    assert done.stdout == f"{tmp_path / 'out'}\n"
    by_folder = CliRunner().invoke(cli, ["convert", str(named.parent), str(tmp_path / "two")])
    assert by_folder.exit_code == 0
    by_variable = CliRunner().invoke(
        cli, ["convert", str(tmp_path / "three")], env={"INFER_MODEL": "tiny"}
    )
    assert by_variable.exit_code == 0, by_variable.exception


def test_convert_of_a_directory_with_several_or_none(
    tmp_path: Path, named: Path, cli: click.Group
) -> None:
    (named.parent / "other.gguf").write_bytes(named.read_bytes())
    for place, kind in ((named.parent, InvalidModelError), (tmp_path, ModelNotFoundError)):
        done = CliRunner().invoke(cli, ["convert", str(place), str(tmp_path / "out")])
        assert isinstance(done.exception, kind)
    assert "other.gguf" in str(
        CliRunner().invoke(cli, ["convert", str(named.parent), "o"]).exception
    )


@pytest.mark.parametrize("words", [["out"], ["a", "b", "c"], ["-m", "x", "a", "b"]])
def test_convert_wants_a_model_and_a_directory(
    named: Path, cli: click.Group, words: list[str]
) -> None:
    done = CliRunner().invoke(cli, ["convert", *words])
    assert (done.exit_code, "convert -m MODEL OUT_DIR" in done.stderr) == (2, True)


def test_progress_begins_with_the_weights(tmp_path: Path, tiny_gguf: MakeGguf) -> None:
    seen: list[tuple[int, int]] = []
    source = tiny_gguf().write(tmp_path / "m.gguf")
    convert(source, tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    total = seen[0][1]
    assert seen == [(done, total) for done in range(total + 1)]


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
