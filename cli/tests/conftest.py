"""Fixtures of the command line's tests: ``infer-cli`` beside a fake backend and a fake model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

ROOT = Path(__file__).parents[2]
FAKE = Path(__file__).parent / "fake_backend"
MAIN = "from core_cli import main; main()"
_OURS = ("INFER_MODEL", "INFER_RAISE_ERRORS", "CORE_DISABLE_PLUGINS")


@dataclass(frozen=True)
class Finished:
    """How a process ended."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class InferCli:
    """Runs ``infer-cli``: called, in this process; ``start`` and ``finish``, in one of its own."""

    path: tuple[Path, ...] = (ROOT, FAKE)

    def __call__(self, *arguments: str | Path, stdin: str | bytes = "", **env: str) -> Result:
        from core_cli.app import build

        return CliRunner().invoke(build(), [str(a) for a in arguments], input=stdin, env=env)

    def start(self, *arguments: str | bytes | Path, **options: Any) -> subprocess.Popen[bytes]:
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = self._environment(options.pop("env", {}))
        script = options.pop("script", MAIN)
        command = [sys.executable, "-c", script, *arguments]
        streams: dict[str, Any] = {**pipes, **options}
        return subprocess.Popen[bytes](command, env=environment, **streams)

    def finish(
        self, *arguments: str | bytes | Path, stdin: bytes = b"", **options: Any
    ) -> Finished:
        with self.start(*arguments, **options) as process:
            out, err = process.communicate(stdin, timeout=300)
        return Finished(process.returncode, out.decode(), err.decode(errors="backslashreplace"))

    def on_terminal(
        self, *arguments: str | bytes | Path, script: str = MAIN, stdin: str = "", **env: str
    ) -> tuple[int, str]:
        """Exit code and what a terminal of 100 columns showed, stdout and stderr together."""
        import pty  # not on every system

        ours, theirs = pty.openpty()
        settings = {"COLUMNS": "100", "TERM": "xterm-256color", **env}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        if stdin:
            del streams["stdin"]
        with self.start(*arguments, env=settings, script=script, **streams) as process:
            os.close(theirs)
            if process.stdin is not None:
                process.stdin.write(stdin.encode())
                process.stdin.close()
            shown = b""
            while chunk := self.read(ours):
                shown += chunk
        os.close(ours)
        return process.returncode, shown.decode().replace("\r\n", "\n")

    @staticmethod
    def read(terminal: int) -> bytes:
        """What a terminal was sent; nothing at the end."""
        try:
            return os.read(terminal, 65536)
        except OSError:  # Linux's way to say that the other side is closed
            return b""

    def beside(self, *folders: Path) -> InferCli:
        """The same with more distributions installed (processes only)."""
        return replace(self, path=(*self.path, *folders))

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if name not in _OURS}
        return {**kept, "PYTHONPATH": os.pathsep.join(map(str, self.path)), **more}


@pytest.fixture
def infer_cli(monkeypatch: pytest.MonkeyPatch) -> InferCli:
    """``infer-cli`` as it is with the fake backend's distribution installed."""
    for name in _OURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.syspath_prepend(str(FAKE))
    return InferCli()


@pytest.fixture
def fake_model(tmp_path: Path) -> Path:
    """A model directory that only the fake backends load."""
    directory = tmp_path / "model"
    directory.mkdir()
    config = {"model_type": "fake", "hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 100}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")
    return directory


@pytest.fixture
def run(infer_cli: InferCli, fake_model: Path) -> Callable[..., Result]:
    """A command with the fake model; never a traceback."""

    def call(command: str, *flags: str | Path) -> Result:
        result = infer_cli(command, "-m", fake_model, "--backend", "fake", *flags)
        assert "Traceback" not in result.output
        return result

    return call
