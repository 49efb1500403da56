"""Results on stdout among plugins, native code and child processes that print there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.testing import write_model

if TYPE_CHECKING:
    from cli.tests.conftest import InferCli

pytestmark = pytest.mark.load  # a busy machine can make it fail

# A hook plugin and a backend. With NOISE set it prints while it is imported, from a thread at any
# time, from C, whose buffer is written when the process ends, and from children.
LOUD = r"""
import ctypes, os, sys, threading, time
import click, pluggy
from core.testing import FakeBackend

hookimpl = pluggy.HookimplMarker("core")


def noise(where):
    if os.environ.get("NOISE"):
        print("NOISE", where, flush=True)
        print("NOISE without a flush", where)
        os.write(1, b"NOISE \xff\x00 without an end")
        ctypes.CDLL(None).puts(b"NOISE of C")
        os.system("echo NOISE of a child")


def without_end():
    while True:
        os.write(1, b"NOISE of a thread\n")
        print("NOISE of a thread")
        time.sleep(0.001)


noise("import")
if os.environ.get("NOISE"):
    threading.Thread(target=without_end, daemon=True).start()


class Backend(FakeBackend):
    def available(self):
        noise("available")
        return True

    def load_model(self, path, config):
        noise("load")
        return super().load_model(path, config)


def likely(prompt, labels):
    noise("prompt")
    return {label: 0.25 for label in labels}


BACKEND = Backend("Hello there.", labels=likely, name="loud")


@hookimpl
def core_register_commands(cli):
    noise("registration")

    @cli.command()
    @click.option("-o", "file", type=click.File("w"), default="-")
    def loud(file):
        noise("command")
        click.echo("a result")
        file.write("of a plugin\n")


@hookimpl
def core_model_loaded(path, backend, seconds):
    noise("load")


@hookimpl
def core_command_finished(command, exit_code):
    noise("end")
"""
COMPLETION = {
    "_INFER_CLI_COMPLETE": "bash_complete",
    "COMP_WORDS": "infer-cli generate --backend fake",
    "COMP_CWORD": "3",
}


@pytest.fixture
def loud(infer_cli: InferCli, tmp_path: Path) -> InferCli:
    """``infer-cli`` with the distribution ``loud`` installed."""
    folder = tmp_path / "site"
    info = folder / "loud-1.dist-info"
    info.mkdir(parents=True)
    (folder / "loud.py").write_text(LOUD)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loud\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[core.hooks]\nloud = loud\n[core.backends]\nloud = loud:BACKEND\n"
    )
    return infer_cli.beside(folder)


@pytest.fixture
def loud_model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.mark.parametrize(
    "line",
    [
        "--version",
        "--help",
        "loud --help",
        "loud",
        "backends",
        "backends --json",
        "info MODEL --json",
        "discover MODEL --json",
        "classify -m MODEL --backend loud --json --labels a,b x a",
        "classify -m MODEL --backend loud --to csv --labels a,b x a",
        "generate -m MODEL --backend loud --to jsonl x a",
        "generate -m MODEL --backend loud --max-tokens 2 x",
        "chat -m MODEL --backend loud --max-tokens 2 x",
        "",
    ],
)
def test_noise_is_no_part_of_the_results(loud: InferCli, loud_model: Path, line: str) -> None:
    arguments = [word.replace("MODEL", str(loud_model)) for word in line.split()]
    environment = {} if line else COMPLETION
    quiet = loud.finish(*arguments, env=environment)
    noisy = loud.start(*arguments, env={**environment, "NOISE": "1"}, stdin=None)
    out, err = noisy.communicate(timeout=300)
    assert quiet.exit_code == noisy.returncode == 0, quiet.stderr
    assert quiet.stdout
    assert out.decode() == quiet.stdout
    for kind in (
        b"import",
        b"without a flush",
        b"of C",
        b"of a child",
        b"of a thread",
        b"\xff\x00",
    ):
        assert b"NOISE" in err
        assert kind in err


def test_results_of_a_plugin_reach_stdout(loud: InferCli) -> None:
    assert loud.finish("loud", env={"NOISE": "1"}).stdout == "a result\nof a plugin\n"


def test_noise_before_the_program_begins(loud: InferCli, tmp_path: Path) -> None:
    """It is in Python's buffer, as that of a ``sitecustomize`` that prints."""
    (tmp_path / "site" / "sitecustomize.py").write_text("print('NOISE of the site')")
    done = loud.finish("--version", env={"PYTHONUNBUFFERED": ""})
    assert done.stdout.startswith("infer-cli, version")
    assert "NOISE" not in done.stdout
    assert "NOISE of the site" in done.stderr
